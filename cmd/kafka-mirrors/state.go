package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror/coordinator"
	statefile "github.com/clustermirror/mirror/store/file"
	statekafka "github.com/clustermirror/mirror/store/kafka"
	"github.com/clustermirror/mirror/transport/kafka"
)

// The kinds of places where state stands.
const (
	inMemory = "memory"
	inFolder = "file:DIR"
	inKafka  = "kafka"
	nowhere  = "none"
)

// stateHelp is the part of the help about state.
const stateHelp = `State. What a mirror has to remember is where its topics stopped, which are paused,
and which epochs of the source it has seen:
  memory    forgotten when this process ends. Copies stay exact, since the
            destination's log is looked at again. But a topic that was stopped or
            paused is mirrored again by the next run, and a failback has no position.
  file:DIR  a folder on a local disk, for one process at a time.
  kafka     a compacted topic of the destination, __cluster_mirror_state unless
            --state-topic says otherwise. It is made where it is missing, and is never
            mirrored. It is what failover and failback are made for: a stop or a
            pause that any process stores there for this --name is followed at once,
            and holds until another process stores that the topic is mirrored again.

Failback. A mirror back to the old source asks the state of the mirrors the other
way where they stopped; only what came later is copied then. With --state kafka that
state lies in the source, in a topic of the same name, to be described and read
(--peer-state kafka). Where it was a folder, name it (--peer-state file:DIR), once the
run that used it has ended. Without a position a destination that has records of its
own is refused. A state that cannot be read keeps topics from being mirrored, and is
named in the status.`

// stateFlags say where state stands: of the mirrors into the destination, and of
// those into the source.
type stateFlags struct{ state, peer, topic string }

func (f *stateFlags) register(c *cobra.Command) {
	c.Flags().StringVar(&f.state, "state", inMemory, "where this mirror's state stands, `memory|file:DIR|kafka`; kafka is a topic of the destination")
	c.Flags().StringVar(&f.peer, "peer-state", "", "where the state of mirrors into the source stands, `none|file:DIR|kafka`\n(default kafka with --state kafka, otherwise none)")
	c.Flags().StringVar(&f.topic, "state-topic", "", "`name` of the topic that holds state in a cluster (default "+statekafka.DefaultTopic+")")
}

// place is where state stands.
type place struct{ kind, dir string }

func parsePlace(flag, text string, kinds ...string) (place, error) {
	if dir, ok := strings.CutPrefix(text, "file:"); ok && slices.Contains(kinds, inFolder) {
		if dir == "" {
			return place{}, fmt.Errorf("--%s: file: names no folder", flag)
		}
		return place{kind: inFolder, dir: dir}, nil
	}
	if text == inFolder || !slices.Contains(kinds, text) {
		return place{}, fmt.Errorf("--%s: %q is not one of %s", flag, text, strings.Join(kinds, ", "))
	}
	return place{kind: text}, nil
}

// places are what the flags say, and all that is wrong with them.
func (f *stateFlags) places() (state, peer place, err error) {
	state, stateErr := parsePlace("state", f.state, inMemory, inFolder, inKafka)
	text := f.peer
	switch {
	case text == "" && state.kind == inKafka:
		text = inKafka
	case text == "":
		text = nowhere
	}
	peer, peerErr := parsePlace("peer-state", text, nowhere, inFolder, inKafka)
	errs := []error{stateErr, peerErr}
	if peer.kind == inFolder {
		// Opening makes a folder: one that is not there would be taken for a cluster that
		// no mirror ever led to.
		is, err := os.Stat(peer.dir)
		was, stateErr := os.Stat(state.dir)
		switch {
		case err != nil:
			errs = append(errs, fmt.Errorf("--peer-state: %w", err))
		case state.kind == inFolder && stateErr == nil && os.SameFile(is, was):
			errs = append(errs, fmt.Errorf("--peer-state: %s is the folder of --state: mirrors into each cluster have one of their own", peer.dir))
		}
	}
	if f.topic != "" {
		if stateErr == nil && peerErr == nil && state.kind != inKafka && peer.kind != inKafka {
			errs = append(errs, errors.New("--state-topic: needs --state kafka or --peer-state kafka"))
		}
		legal := statekafka.Config{Bootstrap: []string{"any:1"}, Topic: f.topic}
		errs = append(errs, placed("--state-topic", legal.Validate()))
	}
	return state, peer, errors.Join(errs...)
}

// stores are the opened places.
type stores struct {
	state  coordinator.Store     // nil: memory
	peers  coordinator.Positions // nil: nobody is asked
	opened []io.Closer
}

// open opens both places. A cluster's is connected to when it is first used.
func (f *stateFlags) open(source, destination kafka.Config) (*stores, error) {
	state, peer, err := f.places()
	if err != nil {
		return nil, err
	}
	s := &stores{}
	var stateErr, peerErr error
	switch state.kind {
	case inFolder:
		s.state, stateErr = openFolder(s, state.dir, destination.Logger, "is another kafka-mirrors running with it?")
	case inKafka:
		s.state, stateErr = openTopic(s, f.topic, destination)
	}
	switch peer.kind {
	case inFolder:
		s.peers, peerErr = openFolder(s, peer.dir, source.Logger, "has the run of the mirror the other way ended?")
	case inKafka:
		s.peers, peerErr = openTopic(s, f.topic, source)
	}
	if err := errors.Join(placed("--state", stateErr), placed("--peer-state", peerErr)); err != nil {
		return nil, errors.Join(err, s.Close())
	}
	return s, nil
}

func openFolder(s *stores, dir string, logger *slog.Logger, locked string) (*statefile.Store, error) {
	store, err := statefile.Open(dir, &statefile.Options{Logger: logger})
	if errors.Is(err, statefile.ErrLocked) {
		return nil, fmt.Errorf("%w: %s A folder serves one process at a time, --state kafka any number", err, locked)
	}
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, store)
	return store, nil
}

func openTopic(s *stores, topic string, at kafka.Config) (*statekafka.Store, error) {
	store, err := statekafka.New(statekafka.Config{
		Bootstrap: at.Bootstrap, TLS: at.TLS, SASL: at.SASL, ClientID: at.ClientID, RequestTimeout: at.RequestTimeout,
		Topic: topic, Logger: at.Logger,
	})
	if err != nil {
		return nil, err
	}
	s.opened = append(s.opened, store)
	return store, nil
}

// Close closes what was opened. Nobody may be using it any more.
func (s *stores) Close() error {
	var errs []error
	for _, o := range s.opened {
		errs = append(errs, o.Close())
	}
	return errors.Join(errs...)
}
