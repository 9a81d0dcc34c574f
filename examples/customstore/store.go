package main

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"go.etcd.io/bbolt"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// Store keeps the state of mirrors in one file of bbolt, a key-value store with
// transactions. A bucket for each mirror holds two: records by partition and intents
// by topic. One process at a time has the file open, so watches need nothing but
// channels. Values are the JSON that the library gives its own types.
type Store struct {
	db      *bbolt.DB
	watches watches
}

var (
	definitions = []byte("definitions") // by name
	mirrors     = []byte("mirrors")     // a bucket by name
	records     = []byte("records")
	intents     = []byte("intents")
)

// Open opens a file, or makes it. A file that another process has open is refused
// after a second.
func Open(path string) (*Store, error) {
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	s := &Store{db: db}
	err = db.Update(func(tx *bbolt.Tx) error {
		_, err1 := tx.CreateBucketIfNotExists(definitions)
		_, err2 := tx.CreateBucketIfNotExists(mirrors)
		return errors.Join(err1, err2)
	})
	if err != nil {
		return nil, errors.Join(err, db.Close())
	}
	return s, nil
}

// Close closes the file and ends all watches.
func (s *Store) Close() error {
	s.watches.end()
	return s.db.Close()
}

// Load implements coordinator.Store.
func (s *Store) Load(ctx context.Context, mirror string) (out []coordinator.Record, err error) {
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		return each(part(tx, mirror, records), func(_ []byte, r coordinator.Record) { out = append(out, r) })
	})
	return out, err
}

// Save implements coordinator.Store: all in one transaction, each compared by itself.
func (s *Store) Save(ctx context.Context, mirror string, recs []coordinator.Record) []error {
	errs := make([]error, len(recs))
	err := s.update(ctx, func(tx *bbolt.Tx) error {
		b, err := makePart(tx, mirror, records)
		if err != nil {
			return err
		}
		for i, r := range recs {
			var old coordinator.Record // zero when there is none
			if _, err := get(b, key(r.Partition), &old); err != nil {
				return err
			}
			if r.StateEpoch != old.StateEpoch+1 || r.OwnerEpoch < old.OwnerEpoch {
				errs[i] = coordinator.ErrConflict
				continue
			}
			if err := put(b, key(r.Partition), r); err != nil {
				return err
			}
		}
		return nil
	})
	for i := range errs {
		if err != nil {
			errs[i] = err // nothing was written
		}
	}
	return errs
}

// Delete implements coordinator.Store.
func (s *Store) Delete(ctx context.Context, mirror string, ps []cluster.Partition) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		b := part(tx, mirror, records)
		if b == nil {
			return nil
		}
		for _, p := range ps {
			if err := b.Delete(key(p)); err != nil {
				return err
			}
		}
		for _, p := range ps {
			if k, _ := b.Cursor().Seek(prefix(p.Topic)); bytes.HasPrefix(k, prefix(p.Topic)) {
				continue
			}
			if in := part(tx, mirror, intents); in != nil {
				if err := in.Delete([]byte(p.Topic)); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// SaveIntents implements coordinator.Store. The revision is the bucket's sequence,
// which outlives everything that is deleted.
func (s *Store) SaveIntents(ctx context.Context, mirror string, wanted []coordinator.Intent) ([]int64, error) {
	saved, revisions := make([]coordinator.Intent, len(wanted)), make([]int64, len(wanted))
	s.watches.mu.Lock() // watchers are told in the order of revisions
	defer s.watches.mu.Unlock()
	err := s.update(ctx, func(tx *bbolt.Tx) error {
		b, err := makePart(tx, mirror, intents)
		for i, in := range wanted {
			if err != nil {
				return err
			}
			n, err := tx.Bucket(mirrors).NextSequence()
			if err != nil {
				return err
			}
			in.Revision = int64(n)
			saved[i], revisions[i] = in, in.Revision
			if err := put(b, []byte(in.Topic), in); err != nil {
				return err
			}
		}
		return err
	})
	if err == nil {
		s.watches.tell(mirror, saved)
	}
	return revisions, err
}

// Watch implements coordinator.Store.
func (s *Store) Watch(ctx context.Context, mirror string) (<-chan []coordinator.Intent, error) {
	s.watches.mu.Lock()
	defer s.watches.mu.Unlock()
	var first []coordinator.Intent
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		return each(part(tx, mirror, intents), func(_ []byte, in coordinator.Intent) { first = append(first, in) })
	})
	if err != nil {
		return nil, err
	}
	return s.watches.add(ctx, mirror, first), nil
}

// Definitions implements coordinator.Definitions.
func (s *Store) Definitions(ctx context.Context) (out []coordinator.Definition, err error) {
	err = s.view(ctx, func(tx *bbolt.Tx) error {
		return each(tx.Bucket(definitions), func(_ []byte, d coordinator.Definition) { out = append(out, d) })
	})
	return out, err
}

// Define implements coordinator.Definitions.
func (s *Store) Define(ctx context.Context, d coordinator.Definition) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		var old coordinator.Definition
		if _, err := get(tx.Bucket(definitions), []byte(d.Name), &old); err != nil {
			return err
		}
		if d.Revision != old.Revision+1 {
			return coordinator.ErrConflict
		}
		return put(tx.Bucket(definitions), []byte(d.Name), d)
	})
}

// Undefine implements coordinator.Definitions.
func (s *Store) Undefine(ctx context.Context, name string) error {
	return s.update(ctx, func(tx *bbolt.Tx) error {
		if tx.Bucket(mirrors).Bucket([]byte(name)) != nil {
			if err := tx.Bucket(mirrors).DeleteBucket([]byte(name)); err != nil {
				return err
			}
		}
		return tx.Bucket(definitions).Delete([]byte(name))
	})
}

// Positions implements coordinator.Positions: it reads the records asked for and has
// the library say what they mean.
func (s *Store) Positions(ctx context.Context, source string, ps []cluster.Partition) ([]coordinator.PositionAnswer, error) {
	found := map[string][]coordinator.Record{}
	err := s.view(ctx, func(tx *bbolt.Tx) error {
		return tx.Bucket(mirrors).ForEachBucket(func(name []byte) error {
			b := part(tx, string(name), records)
			for _, p := range ps {
				var r coordinator.Record
				there, err := get(b, key(p), &r)
				if err != nil {
					return err
				}
				if there {
					found[string(name)] = append(found[string(name)], r)
				}
			}
			return nil
		})
	})
	if err != nil {
		return nil, err
	}
	return coordinator.AnswerPositions(found, source, ps), nil
}

func (s *Store) view(ctx context.Context, f func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.View(f)
}

func (s *Store) update(ctx context.Context, f func(*bbolt.Tx) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.db.Update(f) // written to the disk when it returns
}

// prefix begins the keys of a topic's partitions. No topic name has a zero byte.
func prefix(topic string) []byte { return append([]byte(topic), 0) }

func key(p cluster.Partition) []byte {
	return binary.BigEndian.AppendUint32(prefix(p.Topic), uint32(p.Partition))
}

// part is a part of a mirror's bucket; nil when nothing was ever stored there.
func part(tx *bbolt.Tx, mirror string, name []byte) *bbolt.Bucket {
	if b := tx.Bucket(mirrors).Bucket([]byte(mirror)); b != nil {
		return b.Bucket(name)
	}
	return nil
}

func makePart(tx *bbolt.Tx, mirror string, name []byte) (*bbolt.Bucket, error) {
	b, err := tx.Bucket(mirrors).CreateBucketIfNotExists([]byte(mirror))
	if err != nil {
		return nil, err
	}
	return b.CreateBucketIfNotExists(name)
}

func put(b *bbolt.Bucket, key []byte, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return b.Put(key, data)
}

func get(b *bbolt.Bucket, key []byte, v any) (there bool, err error) {
	if b == nil {
		return false, nil
	}
	data := b.Get(key)
	if data == nil {
		return false, nil
	}
	return true, json.Unmarshal(data, v)
}

func each[V any](b *bbolt.Bucket, f func(key []byte, v V)) error {
	if b == nil {
		return nil
	}
	return b.ForEach(func(k, data []byte) error {
		var v V
		err := json.Unmarshal(data, &v)
		f(k, v)
		return err
	})
}
