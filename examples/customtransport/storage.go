package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sort"

	"github.com/clustermirror/mirror/cluster"
)

// journal is the platform's own storage of one partition: record batches one after
// the other in a file, as they came, and a small file with what else it has to
// remember. It is used by one goroutine at a time.
type journal struct {
	path  string
	file  *os.File
	size  int64   // of the file's good part
	index []entry // by offset
	end   int64
	notes notes
}

// entry is where a batch stands.
type entry struct {
	base, next int64
	at         int64
	size       int
}

// notes survive a restart beside the records.
type notes struct {
	Start   int64  `json:"start"`   // log start
	Mirror  string `json:"mirror"`  // whose records these are
	Stopped bool   `json:"stopped"` // the mirror was stopped
	Owner   int64  `json:"owner"`   // of the worker that may append; rises with each
}

// Where a batch's header has what the index needs (record batch, format 2).
const (
	headerSize        = 61
	atLength          = 8 // of what follows the length
	lengthOffset      = 12
	atLastOffsetDelta = 23
)

// openJournal opens or makes a journal. A batch that a crash has cut off is forgotten.
func openJournal(path string) (*journal, error) {
	file, err := os.OpenFile(path+".log", os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	j := &journal{path: path, file: file}
	if b, err := os.ReadFile(path + ".json"); err == nil {
		if err := json.Unmarshal(b, &j.notes); err != nil {
			return nil, fmt.Errorf("%s.json: %w", path, err)
		}
	}
	j.end = j.notes.Start
	info, err := file.Stat()
	for err == nil {
		var h [headerSize]byte
		if _, err = file.ReadAt(h[:], j.size); err != nil {
			break
		}
		base, size := int64(binary.BigEndian.Uint64(h[:])), int(binary.BigEndian.Uint32(h[atLength:]))+lengthOffset
		if j.size+int64(size) > info.Size() {
			break
		}
		j.note(base, base+int64(binary.BigEndian.Uint32(h[atLastOffsetDelta:]))+1, size)
	}
	if err != nil && err != io.EOF {
		return nil, err
	}
	return j, file.Truncate(j.size)
}

func (j *journal) note(base, next int64, size int) {
	j.index = append(j.index, entry{base, next, j.size, size})
	j.size += int64(size)
	j.end = next
}

// save writes the notes down, whole or not at all.
func (j *journal) save() error {
	b, err := json.Marshal(j.notes)
	if err == nil {
		err = os.WriteFile(j.path+".json.new", b, 0o644)
	}
	if err == nil {
		err = os.Rename(j.path+".json.new", j.path+".json")
	}
	return err
}

// append writes a batch behind the last one. The caller has compared the offsets.
func (j *journal) append(b cluster.Batch) error {
	if _, err := j.file.WriteAt(b.Bytes, j.size); err != nil {
		return err
	}
	j.note(b.Base, b.Next, len(b.Bytes))
	return nil
}

// find is the first batch that ends after the offset.
func (j *journal) find(offset int64) int {
	return sort.Search(len(j.index), func(i int) bool { return j.index[i].next > offset })
}

// read gives whole batches from the one that holds offset on.
func (j *journal) read(offset int64, most int) ([]byte, error) {
	first := j.find(offset)
	last := first
	for size := 0; last < len(j.index) && (last == first || size+j.index[last].size <= most); last++ {
		size += j.index[last].size
	}
	if first == last {
		return nil, nil
	}
	b := make([]byte, j.index[last-1].at+int64(j.index[last-1].size)-j.index[first].at)
	_, err := j.file.ReadAt(b, j.index[first].at)
	return b, err
}

// truncate cuts the tail, and the whole of a batch that holds the offset.
func (j *journal) truncate(offset int64) error {
	if offset >= j.end {
		return nil
	}
	if i := j.find(offset); i < len(j.index) {
		offset = min(offset, j.index[i].base)
		j.size, j.index = j.index[i].at, j.index[:i]
	}
	j.end = offset
	if err := j.file.Truncate(j.size); err != nil {
		return err
	}
	return j.start(min(j.notes.Start, offset))
}

// start moves the log start. The records below it stay in the file: a real platform
// would give the room back.
func (j *journal) start(offset int64) error {
	j.notes.Start = offset
	j.end = max(j.end, offset)
	return j.save()
}
