package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
)

// Notes is the ability of a store to keep small values of others beside the state of a
// mirror: JSON documents by key. What they mean is the affair of those who write them;
// the joined destination keeps there who it is as a broker. Safe for concurrent use.
type Notes interface {
	// Notes gives all that a mirror has, by key. They are the receiver's.
	Notes(ctx context.Context, mirror string) (map[string][]byte, error)
	// SwapNotes puts values in the place of others: for each key of now what stands there
	// has to be was[key]. Nothing, before or after, is nil. Keys with something else are
	// refused, and do not keep the others from being written. After an error a key may or
	// may not have been written.
	SwapNotes(ctx context.Context, mirror string, was, now map[string][]byte) (refused []string, err error)
}

// CompactNotes gives copies of what SwapNotes got, in the form in which stores keep and
// compare it: without white space. What is no note is an error.
func CompactNotes(was, now map[string][]byte) (compactWas, compactNow map[string][]byte, err error) {
	compactWas, compactNow = make(map[string][]byte, len(now)), make(map[string][]byte, len(now))
	for key := range now {
		err = errors.Join(err, compact(compactWas, was, key), compact(compactNow, now, key))
	}
	return compactWas, compactNow, err
}

func compact(to, from map[string][]byte, key string) error {
	if key == "" {
		return errors.New("a note without a key")
	}
	if from[key] == nil {
		to[key] = nil
		return nil
	}
	b, err := json.Marshal(json.RawMessage(from[key]))
	if err != nil {
		return fmt.Errorf("note %q: %w", key, err)
	}
	to[key] = b
	return nil
}
