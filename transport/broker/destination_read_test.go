package broker

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/lead"
)

// asAClient is an Admin that was asked to read.
type asAClient struct {
	Admin
	asked int
}

func (a *asAClient) Read(context.Context, cluster.Partition, int64, int32) ([]byte, error) {
	a.asked++
	return []byte("of the leader"), nil
}

// TestReadIsOfAReplica: what we lead is read from those that have it, and from a leader only
// where we are none or they do not answer.
func TestReadIsOfAReplica(t *testing.T) {
	p := cluster.Partition{Topic: "led"}
	admin := &asAClient{}
	d := &Destination{cfg: DestinationConfig{Admin: admin}, server: newServer(ServerConfig{}, func() Self { return Self{} }, nil, nil)}
	var from []int32
	fail := error(nil)
	d.server.read = func(_ context.Context, replica int32, piece lackingPiece) ([]byte, int64, error) {
		from = append(from, replica)
		if piece.topic != (cluster.TopicID{1}) || piece.name != p || piece.offset != 0 || piece.max != 100 {
			t.Errorf("%+v", piece)
		}
		return batchAt(0, 3, 1), 3, fail
	}
	read := func() string {
		b, err := d.Read(t.Context(), p, 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		return string(b)
	}
	if read() != "of the leader" {
		t.Error("we do not lead")
	}
	led := lead.New(lead.Config{Topic: cluster.TopicID{1}, Partition: p, Epoch: 4, Quorum: 1, Followers: []int32{1, 2}, History: []lead.EpochStart{{Epoch: 1, Start: 0}}})
	d.server.led.add(led)
	for _, r := range []int32{1, 2} {
		led.Fetch(lead.Fetch{Replica: r, CurrentEpoch: 4, Offset: 3, LastEpoch: 1, MaxBytes: 1, Now: time.Now()})
	}
	if got := read(); got != string(batchAt(0, 3, 1)) || len(from) != 1 || admin.asked != 1 {
		t.Errorf("%d bytes from %v, a leader was asked %d times", len(got), from, admin.asked)
	}
	if from, fail = nil, errors.New("it is down"); read() != "of the leader" || len(from) != 2 {
		t.Errorf("asked %v", from)
	}
}
