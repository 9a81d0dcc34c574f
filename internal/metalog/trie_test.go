package metalog

import (
	"math/rand/v2"
	"testing"
)

// weak is a key whose hashes collide in all ways: wholly, and in their first
// digits.
type weak int32

func (w weak) hash() uint64 { return uint64(w%7) | uint64(w%3)<<62 }

func TestTrieIsAMap(t *testing.T) {
	check(t, func(n int32) weak { return weak(n) })
	check(t, func(n int32) brokerKey { return brokerKey(n) })
}

// check plays random changes on a trie and a map, and compares every version
// with what it was when it was made.
func check[K hashed](t *testing.T, key func(int32) K) {
	t.Helper()
	rnd := rand.New(rand.NewPCG(1, 2))
	var now trie[K, int]
	model := map[K]int{}
	type version struct {
		trie  trie[K, int]
		model map[K]int
	}
	var versions []version
	for i := range 3000 {
		k := key(rnd.Int32N(200))
		if rnd.IntN(3) == 0 {
			now = now.without(k)
			delete(model, k)
		} else {
			now = now.with(k, i)
			model[k] = i
		}
		if i%100 == 0 {
			frozen := make(map[K]int, len(model))
			for k, v := range model {
				frozen[k] = v
			}
			versions = append(versions, version{now, frozen})
		}
	}
	for n, v := range versions {
		seen := map[K]int{}
		for k, got := range v.trie.all() {
			seen[k] = got
		}
		if len(seen) != len(v.model) || v.trie.size != len(v.model) {
			t.Fatalf("version %d: %d pairs, size %d, want %d", n, len(seen), v.trie.size, len(v.model))
		}
		for i := range int32(200) {
			got, ok := v.trie.get(key(i))
			want, there := v.model[key(i)]
			if got != want || ok != there || ok && seen[key(i)] != want {
				t.Fatalf("version %d key %d: %d %v, want %d %v", n, i, got, ok, want, there)
			}
		}
	}
}

// BenchmarkChange is one change of a partition among a hundred thousand.
func BenchmarkChange(b *testing.B) {
	var image Image
	var d Delta
	image, _ = image.Apply(NewTopic{Name: "t"}, &d)
	for n := range int32(100_000) {
		image, _ = image.Apply(NewPartition{ID: PartitionID{Partition: n}}, &d)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := image.Apply(ChangePartition{ID: PartitionID{Partition: 77}}, &d); err != nil {
			b.Fatal(err)
		}
	}
}
