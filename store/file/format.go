package file

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"io"
	"maps"
	"slices"
	"unicode/utf8"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

var (
	// ErrCorrupt: a state file is damaged. The error names the file and what is wrong.
	ErrCorrupt = errors.New("state file is damaged")
	// ErrNewer: a state file was written by a later version of this library.
	ErrNewer = errors.New("state file is of a later version")
)

const (
	formatName = "clustermirror-state"
	// formatVersion is that of files with notes; those without are of version 1, which
	// earlier versions of this library read.
	formatVersion = 2
)

// header is the first line.
type header struct {
	Format   string `json:"format"`
	Version  int    `json:"version"`
	Mirror   string `json:"mirror"`
	Revision int64  `json:"revision"`
}

// trailer is the last line.
type trailer struct {
	Lines  int    `json:"lines"`
	CRC32C string `json:"crc32c"`
}

// What a line in between begins with; it ends with a brace.
const (
	definitionLine = `{"definition":`
	recordLine     = `{"record":`
	intentLine     = `{"intent":`
	noteLine       = `{"note":`
)

func newChecksum() hash.Hash32 { return crc32.New(crc32.MakeTable(crc32.Castagnoli)) }

// newEntry makes an entry of what a reader will find: a value that could not be read
// again is refused, since it would make the whole file unreadable.
func newEntry[T any](head string, value T, valid func(T) error) (*entry[T], error) {
	data, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	line := slices.Concat([]byte(head), data, []byte("}\n"))
	back, err := readEntry(head, line, valid)
	if err != nil {
		return nil, err
	}
	return back, nil
}

// readEntry reads a line with its newline, of which head was seen.
func readEntry[T any](head string, line []byte, valid func(T) error) (*entry[T], error) {
	inner, ok := bytes.CutSuffix(line[len(head):], []byte("}\n"))
	if !ok {
		return nil, errors.New("line does not end with a brace")
	}
	e := &entry[T]{line: line}
	if err := json.Unmarshal(inner, &e.value); err != nil {
		return nil, err
	}
	return e, valid(e.value)
}

func validRecord(r coordinator.Record) error {
	if r.StateEpoch < 1 {
		return fmt.Errorf("%v: state epoch %d", r.Partition, r.StateEpoch)
	}
	return nil
}

func validIntent(in coordinator.Intent) error {
	switch {
	case in.Topic == "":
		return errors.New("intent without a topic")
	case !in.Desired.Valid():
		return fmt.Errorf("desired state %q is not known", in.Desired)
	}
	return nil
}

func validDefinition(d coordinator.Definition) error {
	if d.Revision < 1 {
		return fmt.Errorf("definition %q: revision %d", d.Name, d.Revision)
	}
	return nil
}

// encode writes a mirror's file.
func encode(w io.Writer, mirror string, s *state) error {
	if !utf8.ValidString(mirror) {
		return fmt.Errorf("name of mirror %q is not UTF-8", mirror)
	}
	sum := newChecksum()
	out := bufio.NewWriterSize(io.MultiWriter(w, sum), 256<<10)
	version := 1
	if len(s.notes) > 0 {
		version = formatVersion
	}
	if err := writeLine(out, header{Format: formatName, Version: version, Mirror: mirror, Revision: s.revision}); err != nil {
		return err
	}
	lines := len(s.records) + len(s.intents) + len(s.notes)
	if s.definition != nil {
		lines++
		out.Write(s.definition.line) // an error of out stays with it until Flush
	}
	for _, p := range slices.SortedFunc(maps.Keys(s.records), cluster.Partition.Compare) {
		out.Write(s.records[p].line)
	}
	for _, topic := range slices.Sorted(maps.Keys(s.intents)) {
		out.Write(s.intents[topic].line)
	}
	for _, key := range slices.Sorted(maps.Keys(s.notes)) {
		out.Write(s.notes[key].line)
	}
	if err := out.Flush(); err != nil {
		return err
	}
	return writeLine(w, trailer{Lines: lines, CRC32C: fmt.Sprintf("%08x", sum.Sum32())})
}

func writeLine(w io.Writer, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// decode reads a mirror's file. Its errors are ErrCorrupt or ErrNewer, and do not name
// the file.
func decode(data []byte) (mirror string, s *state, err error) {
	head, body, tail, err := frame(data)
	if err != nil {
		return "", nil, err
	}
	s = newState()
	s.revision = head.Revision
	lines := 0
	for line := range bytes.Lines(body) {
		lines++
		if err := s.read(head, line); err != nil {
			if newerRecord(line) {
				return "", nil, fmt.Errorf("%w: line %d: %w", ErrNewer, lines+1, err)
			}
			return "", nil, corrupt("line %d: %v", lines+1, err)
		}
	}
	if lines != tail.Lines {
		return "", nil, corrupt("has %d lines, its last line counts %d", lines, tail.Lines)
	}
	return head.Mirror, s, nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrCorrupt, fmt.Sprintf(format, args...))
}

// frame takes the first and the last line off and checks everything that can be checked
// without knowing what is in between.
func frame(data []byte) (head header, body []byte, tail trailer, err error) {
	first, rest, ended := bytes.Cut(data, []byte("\n"))
	switch bad := json.Unmarshal(first, &head); {
	case len(data) == 0:
		return head, nil, tail, corrupt("is empty")
	case bad != nil || head.Format != formatName:
		return head, nil, tail, corrupt("does not begin with the line of a %s file", formatName)
	case head.Version > formatVersion:
		return head, nil, tail, fmt.Errorf("%w: is of format version %d, this library knows %d", ErrNewer, head.Version, formatVersion)
	case head.Version < 1 || head.Revision < 0:
		return head, nil, tail, corrupt("version %d, revision %d", head.Version, head.Revision)
	case !ended || data[len(data)-1] != '\n':
		return head, nil, tail, corrupt("ends in the middle of a line")
	}
	at := bytes.LastIndexByte(rest[:max(0, len(rest)-1)], '\n') + 1
	body, last := rest[:at], rest[at:]
	if json.Unmarshal(last, &tail) != nil || tail.CRC32C == "" {
		return head, nil, tail, corrupt("ends without the line that has its checksum")
	}
	sum := newChecksum()
	sum.Write(data[:len(data)-len(last)])
	var want bytes.Buffer
	if err := writeLine(&want, trailer{Lines: tail.Lines, CRC32C: fmt.Sprintf("%08x", sum.Sum32())}); err != nil {
		return head, nil, tail, err
	}
	if !bytes.Equal(want.Bytes(), last) {
		return head, nil, tail, corrupt("checksum is %08x, its last line says %q", sum.Sum32(), tail.CRC32C)
	}
	return head, body, tail, nil
}

// read adds one line.
func (s *state) read(head header, line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte(recordLine)):
		e, err := readEntry(recordLine, line, validRecord)
		if err != nil {
			return err
		}
		if s.records[e.value.Partition] != nil {
			return fmt.Errorf("%v is there twice", e.value.Partition)
		}
		s.records[e.value.Partition] = e
	case bytes.HasPrefix(line, []byte(intentLine)):
		e, err := readEntry(intentLine, line, validIntent)
		if err != nil {
			return err
		}
		if in := e.value; s.intents[in.Topic] != nil || in.Revision < 1 || in.Revision > head.Revision {
			return fmt.Errorf("intent of topic %q is there twice, or its revision %d is not within 1 and %d", in.Topic, in.Revision, head.Revision)
		}
		s.intents[e.value.Topic] = e
	case bytes.HasPrefix(line, []byte(noteLine)):
		e, err := readEntry(noteLine, line, validNote)
		if err != nil {
			return err
		}
		if s.notes[e.value.Key] != nil {
			return fmt.Errorf("note %q is there twice", e.value.Key)
		}
		s.notes[e.value.Key] = e
	case bytes.HasPrefix(line, []byte(definitionLine)):
		e, err := readEntry(definitionLine, line, validDefinition)
		if err != nil {
			return err
		}
		if s.definition != nil || e.value.Name != head.Mirror {
			return fmt.Errorf("definition %q in a file of mirror %q, or not the first", e.value.Name, head.Mirror)
		}
		s.definition = e
	default:
		return fmt.Errorf("begins with %.20q", line)
	}
	return nil
}

// newerRecord reports whether a line is a record of a version that is not known yet.
func newerRecord(line []byte) bool {
	var l struct {
		Record struct {
			V int `json:"v"`
		} `json:"record"`
	}
	known := l
	data, err := json.Marshal(coordinator.Record{})
	return err == nil && json.Unmarshal(data, &known.Record) == nil &&
		json.Unmarshal(line, &l) == nil && l.Record.V > known.Record.V
}
