// Package file keeps the state of mirrors in a folder, for a host that runs alone.
//
//	store, err := file.Open("/var/lib/mirror", nil)
//	if err != nil {
//		return err
//	}
//	defer store.Close()
//	m, err := mirror.New("a-to-b", source, destination, &mirror.Options{Store: store})
//
// [Store] is a coordinator.Store, Definitions and Positions. Any number of mirrors and
// coordinators of one process share it. Another process is kept out by a lock on the
// folder ([ErrLocked]): where a second one has to take over by itself, the state belongs
// into the destination cluster, not into a folder.
//
// # What is stored is stored
//
// A call that returns nil is on disk: all state of the mirror is written to a new file,
// the file is synced, renamed over the old one, and the folder is synced. A crash at any
// moment leaves the state before or after. Writers that arrive while a file is being
// written share the next one. The cost of a write grows with the records of the mirror,
// not with what changed (decision 0006 has the reasons and the numbers).
//
// Where writing fails, a full disk for one, every call that shared the write answers the
// error, what is read stays what it was, and the next call tries again.
//
// The folder has to be on a local file system that keeps its word about sync and rename.
//
// # Files
//
// The folder holds a file for each mirror, and "lock". A mirror's file is named mirror-,
// its name, .json, where characters other than a-z, 0-9, '.', '_' and '-' are written as
// % and two hexadecimal digits for each byte ("A-to-b" is in mirror-%41-to-b.json), so
// that no two mirrors share a file where capitals do not count. A name that would be
// longer than 200 characters this way is cut there and followed by ~ and 32 hexadecimal
// digits of its SHA-256. A file .json.tmp is a write that did not come to its end and is
// removed by Open. Other files are left alone.
//
// A mirror's file is lines of JSON:
//
//	{"format":"clustermirror-state","version":1,"mirror":"a-to-b","revision":17}
//	{"definition":{"name":"a-to-b","revision":2,...}}
//	{"record":{"v":1,"partition":{"topic":"orders","partition":0},...}}
//	{"intent":{"topic":"orders","desired":"PAUSED","revision":17}}
//	{"lines":3,"crc32c":"9ae0daaf"}
//
// revision is the highest that an intent of this mirror ever got. There is one definition
// at most, and one record of a partition, in order. The last line counts the lines
// between the first and itself, and has the CRC-32C (Castagnoli) of all bytes before it.
//
// A file that is damaged in any way, or was written by a later version of the format, is
// an error of Open that names it ([ErrCorrupt], [ErrNewer]): a mirror whose state is
// half known must not run, and where its topics stopped is asked by others. What to do is
// the operator's decision; a copy of an earlier day is not the state either, and moving
// the file away makes the mirror a new one. The file of a mirror that was undefined stays, without
// records, for its revision.
package file
