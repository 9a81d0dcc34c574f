package metalog

import (
	"iter"
	"math/bits"
	"slices"
)

// hashed is a key that knows where it belongs in a trie.
type hashed interface {
	comparable
	hash() uint64
}

// trie is a map as a value: with and without give a new one that shares all but
// the path to the key (a hash array mapped trie, 32 ways). This is what lets an
// Image be handed out while the next one is made, whatever its size. The zero
// value is empty.
type trie[K hashed, V any] struct {
	root *node[K, V]
	size int
}

type node[K hashed, V any] struct {
	set   uint32 // bit i: there is a slot for the hash digit i
	slots []slot[K, V]
}

// slot is one of: a node, or the pairs of one hash.
type slot[K hashed, V any] struct {
	child *node[K, V]
	hash  uint64
	pairs []pair[K, V]
}

type pair[K hashed, V any] struct {
	key   K
	value V
}

const digit = 5 // bits of a hash that one level looks at

func (n *node[K, V]) at(hash uint64, shift uint) (bit uint32, index int) {
	bit = 1 << (hash >> shift & (1<<digit - 1))
	return bit, bits.OnesCount32(n.set & (bit - 1))
}

func (t trie[K, V]) get(key K) (V, bool) {
	hash := key.hash()
	n := t.root
	for shift := uint(0); n != nil; shift += digit {
		bit, i := n.at(hash, shift)
		if n.set&bit == 0 {
			break
		}
		s := &n.slots[i]
		for j := range s.pairs {
			if s.pairs[j].key == key {
				return s.pairs[j].value, true
			}
		}
		n = s.child
	}
	var none V
	return none, false
}

func (t trie[K, V]) with(key K, value V) trie[K, V] {
	root := t.root
	if root == nil {
		root = &node[K, V]{}
	}
	root, added := root.with(key.hash(), 0, pair[K, V]{key, value})
	if added {
		t.size++
	}
	return trie[K, V]{root, t.size}
}

func (n *node[K, V]) with(hash uint64, shift uint, p pair[K, V]) (*node[K, V], bool) {
	bit, i := n.at(hash, shift)
	fresh := slot[K, V]{hash: hash, pairs: []pair[K, V]{p}}
	if n.set&bit == 0 {
		return &node[K, V]{n.set | bit, slices.Insert(slices.Clone(n.slots), i, fresh)}, true
	}
	s, added := n.slots[i], true
	switch {
	case s.child != nil:
		s.child, added = s.child.with(hash, shift+digit, p)
	case s.hash != hash: // two hashes that were the same up to here
		below := &node[K, V]{}
		b, _ := below.at(s.hash, shift+digit)
		below.set, below.slots = b, []slot[K, V]{s}
		s = slot[K, V]{}
		s.child, _ = below.with(hash, shift+digit, p)
	default:
		s.pairs = slices.Clone(s.pairs)
		if j := slices.IndexFunc(s.pairs, func(q pair[K, V]) bool { return q.key == p.key }); j >= 0 {
			s.pairs[j], added = p, false
		} else {
			s.pairs = append(s.pairs, p)
		}
	}
	out := &node[K, V]{n.set, slices.Clone(n.slots)}
	out.slots[i] = s
	return out, added
}

func (t trie[K, V]) without(key K) trie[K, V] {
	if _, ok := t.get(key); !ok {
		return t
	}
	return trie[K, V]{t.root.without(key.hash(), 0, key), t.size - 1}
}

// without takes a key away that is there. It gives nil for an empty node.
func (n *node[K, V]) without(hash uint64, shift uint, key K) *node[K, V] {
	bit, i := n.at(hash, shift)
	s := n.slots[i]
	if s.child != nil {
		s.child = s.child.without(hash, shift+digit, key)
	} else {
		s.pairs = slices.DeleteFunc(slices.Clone(s.pairs), func(p pair[K, V]) bool { return p.key == key })
	}
	if s.child == nil && len(s.pairs) == 0 {
		if len(n.slots) == 1 {
			return nil
		}
		return &node[K, V]{n.set &^ bit, slices.Delete(slices.Clone(n.slots), i, i+1)}
	}
	out := &node[K, V]{n.set, slices.Clone(n.slots)}
	out.slots[i] = s
	return out
}

// all visits every pair, in no order that means anything.
func (t trie[K, V]) all() iter.Seq2[K, V] {
	return func(yield func(K, V) bool) {
		if t.root != nil {
			t.root.visit(yield)
		}
	}
}

func (n *node[K, V]) visit(yield func(K, V) bool) bool {
	for i := range n.slots {
		s := &n.slots[i]
		if s.child != nil && !s.child.visit(yield) {
			return false
		}
		for _, p := range s.pairs {
			if !yield(p.key, p.value) {
				return false
			}
		}
	}
	return true
}

// mix spreads a number over all bits (the finalizer of splitmix64).
func mix(x uint64) uint64 {
	x ^= x >> 30
	x *= 0xbf58476d1ce4e5b9
	x ^= x >> 27
	x *= 0x94d049bb133111eb
	return x ^ x>>31
}

// hashString is FNV-1a, mixed.
func hashString(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return mix(h)
}
