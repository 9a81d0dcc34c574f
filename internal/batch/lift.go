package batch

// lift is what a producer's id is raised by: clusters count, and none comes that far.
const lift int64 = 1 << 40

// Lifted is another id for a producer, that no cluster will hand out. Different ids stay
// different. ok is false where there is no room below those of mirrors.
func Lifted(id int64) (lifted int64, ok bool) {
	if lifted = id + lift; id < 0 || lifted >= OwnProducers || lifted < id {
		return id, false
	}
	return lifted, true
}

// Counted reports that a cluster can come to an id by counting.
func Counted(id int64) bool { return 0 <= id && id < lift }

// Grounded is the id that was lifted, however often, and any other as it is: by it
// producers are the same on both sides of a mirror. Ids of mirrors are left alone.
func Grounded(id int64) int64 {
	if id < 0 || id >= OwnProducers {
		return id
	}
	return id % lift
}
