package file

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/coordinator"
)

// sample is a file with a line of each kind.
func sample(t testing.TB) []byte {
	t.Helper()
	d := newDraft(newState())
	put := func(err error) {
		if err != nil {
			t.Fatal(err)
		}
	}
	for i, topic := range []string{"orders", "payments"} {
		r := record(topic, int32(i+1))
		r.Epochs = []coordinator.EpochStart{{Epoch: 1, Start: 0}, {Epoch: 4, Start: 77}}
		e, err := newEntry(recordLine, r, validRecord)
		put(err)
		d.setRecord(r.Partition, e)
	}
	in, err := newEntry(intentLine, coordinator.Intent{Topic: "orders", Desired: coordinator.WantPaused, Revision: 9}, validIntent)
	put(err)
	d.setIntent("orders", in)
	def, err := newEntry(definitionLine, coordinator.Definition{Name: "A to b", Revision: 3}, validDefinition)
	put(err)
	d.setDefinition(def)
	d.revision = 12
	var b bytes.Buffer
	put(encode(&b, "A to b", d.state))
	return b.Bytes()
}

// TestFormat: the form is stored by others, so it does not change by accident.
func TestFormat(t *testing.T) {
	want := `{"format":"clustermirror-state","version":1,"mirror":"A to b","revision":12}
{"definition":{"name":"A to b","revision":3,"source":null}}
{"record":{"v":1,"partition":{"topic":"orders","partition":0},"state":"MIRRORING","previous":"LOG_ALIGNMENT",` +
		`"desired":"MIRRORING","ownerEpoch":1,"stateEpoch":1,"cut":-1,"position":{"epoch":0,"offset":0},"stretch":0,` +
		`"epochs":[{"epoch":1,"start":0},{"epoch":4,"start":77}]}}
{"record":{"v":1,"partition":{"topic":"payments","partition":0},"state":"MIRRORING","previous":"LOG_ALIGNMENT",` +
		`"desired":"MIRRORING","ownerEpoch":1,"stateEpoch":2,"cut":-1,"position":{"epoch":0,"offset":0},"stretch":0,` +
		`"epochs":[{"epoch":1,"start":0},{"epoch":4,"start":77}]}}
{"intent":{"topic":"orders","desired":"PAUSED","revision":9}}
`
	got := string(sample(t))
	body, last, _ := strings.Cut(got, `{"lines":`)
	if diff := cmp.Diff(want, body); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// The checksum was computed by another program.
	if want := "4,\"crc32c\":\"" + sampleCRC + "\"}\n"; last != want {
		t.Errorf("last line ends with %q, want %q", last, want)
	}
}

const noteText = `{"note":{"key":"k","value":{"a":[1]}}}` + "\n"

// TestNoteFormat: a file with notes is of a later version, which earlier libraries refuse.
func TestNoteFormat(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	s := openAt(t, dir)
	put := func(was, now string) {
		t.Helper()
		refused, err := s.SwapNotes(ctx, "m", map[string][]byte{"k": []byte(was)}, map[string][]byte{"k": []byte(now)})
		if err != nil || len(refused) > 0 {
			t.Fatalf("%v, refused %v", err, refused)
		}
	}
	if _, err := s.SwapNotes(ctx, "m", nil, map[string][]byte{"k": []byte(`1`)}); err != nil {
		t.Fatal(err)
	}
	put(`1`, `{"a": [1]}`)
	b, err := os.ReadFile(filepath.Join(dir, fileName("m")))
	want := `{"format":"clustermirror-state","version":2,"mirror":"m","revision":0}` + "\n" + noteText
	if body, _, _ := strings.Cut(string(b), `{"lines":`); err != nil || body != want {
		t.Fatalf("%v, file is\n%s, want\n%s", err, b, want)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, dir)
	if all, err := s.Notes(ctx, "m"); err != nil || len(all) != 1 || string(all["k"]) != `{"a":[1]}` {
		t.Fatalf("opened again: %s, %v", all, err)
	}
	if _, err := s.SwapNotes(ctx, "m", map[string][]byte{"k": []byte(`{"a":[1]}`)}, map[string][]byte{"k": nil}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, fileName("m"))); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("a mirror without state has a file: %v", err)
	}
}

const sampleCRC = "7ec979a6"

// damage is a change to the sample, and what Open has to say of it.
func TestDamage(t *testing.T) {
	data := sample(t)
	// signed gives text the last line that belongs to it.
	signed := func(text string) string {
		sum := newChecksum()
		sum.Write([]byte(text))
		return fmt.Sprintf("%s{\"lines\":%d,\"crc32c\":\"%08x\"}\n", text, strings.Count(text, "\n")-1, sum.Sum32())
	}
	text := string(data)
	body := text[:strings.Index(text, `{"lines":`)]
	without := func(part string) string { return strings.Replace(body, part, "", 1) }
	lines := strings.SplitAfter(body, "\n")
	tests := []struct {
		name, data string
		want       error
		says       string
	}{
		{"empty", "", ErrCorrupt, "is empty"},
		{"zeros", strings.Repeat("\x00", len(data)), ErrCorrupt, "does not begin"},
		{"another format", strings.Replace(text, "clustermirror-state", "something", 1), ErrCorrupt, "does not begin"},
		{"torn", text[:len(text)/2], ErrCorrupt, "ends in the middle of a line"},
		{"torn at a line", body, ErrCorrupt, "ends without the line that has its checksum"},
		{"first line only", lines[0], ErrCorrupt, "ends without"},
		{"a line is missing", strings.Replace(text, lines[2], "", 1), ErrCorrupt, "checksum is"},
		{"two files in one", text + text, ErrCorrupt, "checksum is"},
		{"something follows", text + "\n", ErrCorrupt, "ends without"},
		{"a later version", strings.Replace(text, `"version":1`, `"version":3`, 1), ErrNewer, "format version 3, this library knows 2"},
		{"a later version of a record", signed(strings.Replace(body, `{"v":1,`, `{"v":2,`, 1)), ErrNewer, "line 3: record version 2"},
		{"version zero", signed(strings.Replace(body, `"version":1`, `"version":0`, 1)), ErrCorrupt, "version 0"},
		{"revision below zero", signed(strings.Replace(body, `"revision":12`, `"revision":-1`, 1)), ErrCorrupt, "revision -1"},
		{"a record twice", signed(body + lines[2]), ErrCorrupt, "line 6: orders-0 is there twice"},
		{"an intent twice", signed(body + lines[4]), ErrCorrupt, `line 6: intent of topic "orders"`},
		{"a definition twice", signed(body + lines[1]), ErrCorrupt, `line 6: definition "A to b"`},
		{"another mirror's definition", signed(strings.Replace(body, `"name":"A to b"`, `"name":"c"`, 1)), ErrCorrupt, `definition "c"`},
		{"an intent above the revision", signed(strings.Replace(body, `"revision":9`, `"revision":13`, 1)), ErrCorrupt, "revision 13"},
		{"an unknown state", signed(strings.Replace(body, `"MIRRORING"`, `"SLEEPING"`, 1)), ErrCorrupt, `state "SLEEPING"`},
		{"an unknown desired state", signed(strings.Replace(body, `"PAUSED"`, `"GONE"`, 1)), ErrCorrupt, `desired state "GONE"`},
		{"a note twice", signed(body + noteText + noteText), ErrCorrupt, `line 7: note "k" is there twice`},
		{"a note without a value", signed(body + `{"note":{"key":"k"}}` + "\n"), ErrCorrupt, "line 6: note without"},
		{"an unknown line", signed(body + "{\"other\":{}}\n"), ErrCorrupt, "line 6: begins with"},
		{"a line without its brace", signed(strings.Replace(body, "]}}\n", "]}]\n", 1)), ErrCorrupt, "line 3: line does not end"},
		{"another mirror's file", signed(strings.Replace(without(lines[1]), `"A to b"`, `"c"`, 1)), ErrCorrupt, `is the file of mirror "c", which is named mirror-c.json`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { refuses(t, tt.data, tt.want, tt.says) })
	}
	if mirror, _, err := decode([]byte(signed(body))); err != nil || mirror != "A to b" {
		t.Fatalf("the cases differ by more than one thing: %q, %v", mirror, err)
	}
}

// refuses opens a folder with such a file: the error names it, and the file is left as
// it was.
func refuses(t *testing.T, data string, want error, says string) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, fileName("A to b"))
	if err := os.WriteFile(path, []byte(data), 0o600); err != nil {
		t.Fatal(err)
	}
	for range 2 { // the folder is not locked by an Open that failed
		s, err := Open(dir, nil)
		if err == nil {
			s.Close()
		}
		if !errors.Is(err, want) {
			t.Fatalf("open: %v, want %v", err, want)
		}
		if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), says) {
			t.Errorf("error %q does not name the file, or does not say %q", err, says)
		}
	}
	if after, err := os.ReadFile(path); err != nil || string(after) != data {
		t.Errorf("the file was changed: %v", err)
	}
}

// TestEveryBit: a flipped bit, a missing end or a missing byte is never taken for state.
func TestEveryBit(t *testing.T) {
	data := sample(t)
	check := func(what string, bad []byte) {
		if _, _, err := decode(bad); !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for i := range data {
		for bit := range 8 {
			bad := bytes.Clone(data)
			bad[i] ^= 1 << bit
			check(fmt.Sprintf("byte %d, bit %d", i, bit), bad)
		}
		check(fmt.Sprintf("first %d bytes", i), data[:i])
		check(fmt.Sprintf("without byte %d", i), append(bytes.Clone(data[:i]), data[i+1:]...))
	}
}

// TestAllBadFiles: each of them is named, not only the first.
func TestAllBadFiles(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"mirror-a.json", "mirror-b.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("{}"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Open(dir, nil)
	for _, name := range []string{"mirror-a.json", "mirror-b.json"} {
		if err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v does not name %s", err, name)
		}
	}
}

func TestFileName(t *testing.T) {
	long := strings.Repeat("x", 249)
	tests := []struct{ mirror, want string }{
		{"a-to-b", "mirror-a-to-b.json"},
		{"A-to-b", "mirror-%41-to-b.json"},
		{"a.b_c", "mirror-a.b_c.json"},
		{"con", "mirror-con.json"},
		{"../x", "mirror-..%2fx.json"},
		{"%41", "mirror-%2541.json"},
		{"ü", "mirror-%c3%bc.json"},
		{"", "mirror-.json"},
	}
	for _, tt := range tests {
		if got := fileName(tt.mirror); got != tt.want {
			t.Errorf("file of %q is %q, want %q", tt.mirror, got, tt.want)
		}
	}
	seen := map[string]string{}
	for _, mirror := range []string{long, long[1:], long[:200], strings.ToUpper(long), strings.Repeat("X", 100), "X", "x",
		"x~", "x.json", "x.json.tmp", long[:248] + "y"} {
		name := fileName(mirror)
		folded := strings.ToLower(name)
		if other, taken := seen[folded]; taken {
			t.Errorf("%q and %q share the file %s", mirror, other, name)
		}
		seen[folded] = mirror
		if len(name)+len(unborn) > 255 || name != folded {
			t.Errorf("file name %q of %q: %d bytes", name, mirror, len(name))
		}
		if stored, leftover := ours(name); !stored || leftover {
			t.Errorf("%q is not taken for a mirror's file", name)
		}
	}
}

// FuzzDecode: whatever is in a file, it is read without a panic, and what was read is
// written and read as the same.
func FuzzDecode(f *testing.F) {
	data := sample(f)
	f.Add(data, false)
	f.Add(data[:len(data)/2], false)
	f.Add(data[:bytes.Index(data, []byte(`{"lines":`))], true)
	f.Add([]byte(`{"format":"clustermirror-state","version":1}`+"\n"), true)
	f.Fuzz(func(t *testing.T, data []byte, sign bool) {
		if sign { // a checksum that fits, so that the lines are looked at
			sum := newChecksum()
			sum.Write(data)
			lines := max(0, bytes.Count(data, []byte("\n"))-1)
			data = fmt.Appendf(data, "{\"lines\":%d,\"crc32c\":\"%08x\"}\n", lines, sum.Sum32())
		}
		mirror, s, err := decode(data)
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrNewer) {
				t.Fatalf("error of another kind: %v", err)
			}
			return
		}
		var b bytes.Buffer
		if err := encode(&b, mirror, s); err != nil {
			t.Fatalf("what was read cannot be written: %v", err)
		}
		again, back, err := decode(b.Bytes())
		if err != nil || again != mirror {
			t.Fatalf("what was written cannot be read: %v\n%s", err, b.Bytes())
		}
		if diff := cmp.Diff(s, back, cmp.AllowUnexported(state{}, entry[coordinator.Record]{},
			entry[coordinator.Intent]{}, entry[coordinator.Definition]{})); diff != "" {
			t.Errorf("(-read +read again):\n%s", diff)
		}
	})
}
