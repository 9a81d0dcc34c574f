package coordinator

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/datadriven"
)

var testPartition = cluster.Partition{Topic: "orders", Partition: 3}

// scriptErrors are the errors a script can name.
var scriptErrors = map[string]error{
	"unreachable":    cluster.ErrUnreachable,
	"topic-replaced": cluster.ErrTopicReplaced,
	"diverged":       cluster.ErrDiverged,
	"truncated":      cluster.ErrTruncated,
	"canceled":       context.Canceled,
	"timeout":        cluster.ErrTimeout,
}

// TestScripts plays testdata/step: each command is an event (or "record", which
// shows the record), each answer says what step made of it.
func TestScripts(t *testing.T) {
	datadriven.Run(t, "testdata/step/*.txt", func(t *testing.T) func(datadriven.Command) string {
		rec := newRecord(testPartition)
		return func(cmd datadriven.Command) string {
			if cmd.Name == "record" {
				return describe(rec)
			}
			next, effects, err := step(rec, scriptEvent(t, cmd))
			if err != nil {
				return "refused: " + err.Error()
			}
			out := fmt.Sprintf("%s -> %s", rec.State, next.State)
			switch {
			case next.equal(rec):
				out = fmt.Sprintf("%s, nothing to store", rec.State)
			case next.State == rec.State:
				out = fmt.Sprintf("%s, stored", rec.State)
			}
			for _, e := range effects {
				out += ", " + string(e.Kind)
			}
			rec = next
			return out
		}
	})
}

func scriptEvent(t *testing.T, cmd datadriven.Command) Event {
	ev := Event{
		Partition: testPartition, Kind: EventKind(cmd.Name), Seq: uint64(cmd.Int(t, "seq", 0)),
		How: cmd.Arg("how", ""), Epoch: int32(cmd.Int(t, "epoch", -1)),
		Start: cmd.Int(t, "start", -1), Cut: cmd.Int(t, "cut", -1), Trim: cmd.Int(t, "trim", 0),
		Desired: Desired(strings.ToUpper(cmd.Arg("desired", ""))),
	}
	ev.TopicID[0] = byte(cmd.Int(t, "id", 0))
	ev.RebuildOf[0] = byte(cmd.Int(t, "rebuild-of", 0))
	if from, ok := cmd.Args["sources"]; ok {
		ev.Sources = strings.Split(from, ",")
	}
	if owed := cmd.Int(t, "restore", -1); owed >= 0 {
		ev.Restore = []cluster.GroupOffset{{Group: "readers", Offset: owed}, {Group: "billing", Offset: owed / 2}}
	}
	if at, ok := cmd.Args["position"]; ok {
		epoch, offset, _ := strings.Cut(at, "/")
		e, _ := strconv.Atoi(epoch)
		o, err := strconv.Atoi(offset)
		if err != nil {
			t.Fatalf("line %d: position=%s is not epoch/offset", cmd.Line, at)
		}
		ev.Position = &cluster.Position{Epoch: int32(e), Offset: int64(o)}
	}
	if name, ok := cmd.Args["err"]; ok {
		if ev.Err = scriptErrors[name]; ev.Err == nil {
			ev.Err = errors.New(name)
		}
	}
	return ev
}

// describe is a record on a few lines, without what is at rest.
func describe(r Record) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s (before: %s), wanted %s, stretch %d aligned %v appended %v\n",
		r.State, r.Previous, r.Desired, r.Stretch, r.Aligned, r.Appended)
	if r.Reason != "" {
		fmt.Fprintf(&b, "reason %q retriable %v attempts %d\n", r.Reason, r.Retriable, r.Attempts)
	}
	if r.HasPosition {
		fmt.Fprintf(&b, "position %d/%d\n", r.Position.Epoch, r.Position.Offset)
	}
	if r.Cut >= 0 {
		fmt.Fprintf(&b, "cut %d\n", r.Cut)
	}
	if !r.RebuildOf.IsZero() {
		fmt.Fprintf(&b, "rebuild of %d\n", r.RebuildOf[0])
	}
	for _, o := range r.Restore {
		fmt.Fprintf(&b, "owes %s %d\n", o.Group, o.Offset)
	}
	if len(r.Sources) > 0 {
		fmt.Fprintf(&b, "sources %v\n", r.Sources)
	}
	if len(r.Epochs) > 0 {
		fmt.Fprintf(&b, "epochs %v\n", r.Epochs)
	}
	return b.String()
}
