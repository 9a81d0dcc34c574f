package broker

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/clustermirror/mirror/coordinator"
)

// TestSecretIsShared: whoever asks first makes it, and all have the same.
func TestSecretIsShared(t *testing.T) {
	store := coordinator.NewMemory()
	keeper := func(mirror string) secretKeeper { return NewShared(store, mirror).Overrides().(secretKeeper) }
	first, err := keeper("m").Secret(t.Context())
	if err != nil || len(first) != secretSize {
		t.Fatalf("%d bytes, %v", len(first), err)
	}
	if again, err := keeper("m").Secret(t.Context()); err != nil || string(again) != string(first) {
		t.Errorf("%x and %x, %v", first, again, err)
	}
	if other, err := keeper("n").Secret(t.Context()); err != nil || string(other) == string(first) {
		t.Errorf("another mirror's: %x, %v", other, err)
	}
	_, err = store.SwapNotes(t.Context(), "m", map[string][]byte{secretNote: document(storedSecret{storedVersion, first})}, map[string][]byte{secretNote: document(storedSecret{9, first})})
	if err != nil {
		t.Fatal(err)
	}
	if s, err := keeper("m").Secret(t.Context()); err == nil {
		t.Errorf("%x", s)
	}
}

// questioned is one question to a server that says of itself what is given.
func questioned(t *testing.T, of self, id int32, secret []byte) (said, error) {
	t.Helper()
	s := newServer(ServerConfig{BrokerListener: "INTERNAL"}, func() Self { return Self{} }, nil, nil)
	s.worker = func() self { return of }
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- s.Serve(ctx, "INTERNAL", l, nil) }()
	defer func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(10 * time.Second))
	got, err := askOnce(conn, 7, id, secret)
	if err != nil {
		return got, err
	}
	again, err := askOnce(conn, 8, id, secret) // with another nonce
	if again != got {
		t.Errorf("%+v, then %+v", got, again)
	}
	return got, err
}

// TestAnswerProvesItself: by the secret, for one broker and whose turn it is. Who knows no secret
// gives, and gets, what nobody could trust.
func TestAnswerProvesItself(t *testing.T) {
	ours, others := []byte("ours"), []byte("others")
	group := digestOf("g")
	for _, tt := range []struct {
		name         string
		his, secret  []byte
		id           int32
		proven, fine bool
	}{
		{"the same secret", ours, ours, 101, true, true},
		{"another secret", others, ours, 101, false, false},
		{"another broker's answer", ours, ours, 102, false, false},
		{"he has none", nil, ours, 101, false, true},
		{"we have none", ours, nil, 101, false, true},
	} {
		got, err := questioned(t, self{101, group, true, tt.his}, tt.id, tt.secret)
		if (err == nil) != tt.fine || got.proven != tt.proven {
			t.Errorf("%s: %+v, %v", tt.name, got, err)
		}
		if tt.fine && (got.group != group || !got.turn) {
			t.Errorf("%s: %+v", tt.name, got)
		}
		if !tt.fine && !errors.Is(err, errNotPeer) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	nonce := make([]byte, nonceSize)
	proof := string(proofOf(ours, nonce, 101, group, true))
	for name, other := range map[string][]byte{
		"another nonce": proofOf(ours, append([]byte{1}, nonce[1:]...), 101, group, true), "not its turn": proofOf(ours, nonce, 101, group, false),
		"another group": proofOf(ours, nonce, 101, digestOf("h"), true),
	} {
		if string(other) == proof {
			t.Errorf("%s has the same proof", name)
		}
	}
}

// TestOlderVersionIsAnswered as it was, and an older one's answer is taken.
func TestOlderVersionIsAnswered(t *testing.T) {
	a, b := net.Pipe()
	defer a.Close()
	defer b.Close()
	go func() { // the version before: it reads a frame, whatever is in it
		var size [4]byte
		if _, err := io.ReadFull(b, size[:]); err != nil {
			return
		}
		question := make([]byte, binary.BigEndian.Uint32(size[:]))
		_, _ = io.ReadFull(b, question)
		group := digestOf("g")
		_ = writeFrame(b, append(append(question[4:8:8], group[:]...), 1))
	}()
	if got, err := askOnce(a, 1, 101, []byte("ours")); err != nil || got.proven || !got.turn || got.group != digestOf("g") {
		t.Errorf("%+v, %v", got, err)
	}
	s := newServer(ServerConfig{}, func() Self { return Self{} }, nil, nil)
	s.worker = func() self { return self{101, digestOf("g"), true, []byte("ours")} }
	c := &client{server: s, conn: a}
	go func() { _ = c.answerPeer(header{key: peerKey, correlation: 5}) }()
	var answer [25]byte
	if _, err := io.ReadFull(b, answer[:]); err != nil || binary.BigEndian.Uint32(answer[:]) != 21 {
		t.Errorf("%x, %v", answer, err)
	}
}

// TestWhoProvesIsNotFeigned: once one has proven who it is, an answer that anybody could give
// is none, so that its silence shows.
func TestWhoProvesIsNotFeigned(t *testing.T) {
	p := newPeers(nil, "g", time.Second)
	p.begin(t.Context(), 101)
	plain, proven := said{group: p.group, turn: true}, said{group: p.group, turn: true, proven: true}
	if !p.answered(101, plain) { // of the version before
		t.Error("nothing better is known")
	}
	if !p.answered(101, proven) || p.answered(101, plain) {
		t.Error("what anybody could say counts")
	}
	heard := p.words()[101].heard
	if p.answered(101, said{group: p.group}); p.words()[101].heard != heard || p.words()[101].anew {
		t.Errorf("%+v", p.words()[101])
	}
	if p.answered(102, proven) {
		t.Error("nobody asked it")
	}
}
