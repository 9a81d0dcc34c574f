package kafka

import (
	"math"
	"math/rand/v2"
)

// A turn is a worker's right to write markers with one id. A broker refuses a marker
// whose producer epoch, or whose coordinator epoch, is lower than that of the id's last
// one, and takes all others; it does not look where the log ends. So the first marker
// of a turn has to lose against whatever has been written since its worker has looked
// at the log end:
//
//   - an ordinary marker at that offset, of an earlier turn, has a higher coordinator
//     epoch, by its rank;
//   - the first marker of another worker that has looked at the same end has a higher
//     producer epoch and a lower rank, or the other way round. Of two such markers a
//     broker takes the one that comes first.
//
// And when it stands, its producer epoch has the broker refuse all that earlier turns may
// still have on the way. Two workers that pick the same could both get through: those that
// the state store knows differ in their owner epochs, and do not; others have one chance in
// picks, for the time of a round trip. What has landed displaced is found by both.
type turn struct {
	id    int64 // of the markers
	pick  int32 // from 0 up to picks
	epoch int32 // of the producer
	held  bool  // the first marker stands
}

// turns is how many turns an id has: producer epochs do not go further. Behind that,
// ranks alone tell workers apart.
const turns = math.MaxInt16

// Ranks are the lowest bits of a marker's coordinator epoch.
const (
	picks    = 16
	rankBits = 5
	ordinary = 1<<rankBits - 1 // rank of every marker but the first of a turn
)

// takeTurn begins a turn with the id of the next marker; known is the epoch of its last
// one, -1 where there is none. A turn that is the broker's last goes on, unless something
// of it may be on the way.
func (l *lane) takeTurn(id int64, known, owner int32) {
	before := l.turn
	if before.held && before.id == id && before.epoch == known && l.doubtful == 0 {
		return
	}
	pick := rand.Int32N(picks)
	if owner > 0 {
		pick = owner&3<<2 | pick&3
	}
	if before.pick == pick && before.id != 0 { // its first marker may be on the way
		pick ^= 1
	}
	l.turn = turn{id: id, pick: pick, epoch: min(known+1+pick, turns)}
}

// with is the turn for markers of an id. Another id than that of the log end when the turn
// began has no markers yet.
func (t turn) with(id int64) turn {
	if t.id == id {
		return t
	}
	return turn{id: id, pick: t.pick, epoch: t.pick}
}

// rank is that of the turn's next marker.
func (t turn) rank() int32 {
	if t.held {
		return ordinary
	}
	return picks - 1 - t.pick
}
