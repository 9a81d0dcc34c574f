package main

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/coordinator"
)

// TestCommandLines: what is wrong with a command line is said as a whole, before anything is
// asked.
func TestCommandLines(t *testing.T) {
	bad := file(t, "m.properties", "colour=red\nsecurity.protocol=TLS\nretry.min=soon\n")
	for _, tt := range []struct {
		line string
		want string
	}{
		{"create", `--bootstrap-server: is needed, or bootstrap.servers in --command-config
--mirror: is needed
--mirror-config: is needed
`},
		{"create --mirror m --bootstrap-server a:1 --mirror-config " + bad, bad + `: line 1: colour: unknown key
` + bad + `: security.protocol: "TLS" is not one of PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
` + bad + `: bootstrap.servers: is needed
`},
		{"create --mirror m --bootstrap-server a:1 --mirror-config " + bad + "x", bad + "x: no such file or directory\n"},
		{"create --mirror a/b --bootstrap-server a:1 --mirror-config " + file(t, "m.properties", "bootstrap.servers=a:1\nretry.min=soon\n"),
			`name: "a/b" has characters other than letters, digits, '.', '_' and '-'
config: retry.min: "soon" is no duration above zero
`},
		{"alter --mirror m --bootstrap-server a:1", "nothing to change: give --add-config, --add-config-file or --delete-config\n"},
		{"alter --mirror m --bootstrap-server a:1 --add-config x --add-config y=1 --delete-config z", `--add-config: "x" is not key=value
--add-config: y: unknown key
--delete-config: z: unknown key
`},
		{"delete --bootstrap-server a:1 --state-topic state --timeout 0s --log-level loud", `--log-level: "loud" is not one of off, error, warn, info, debug
--state-topic: "state" does not begin with __, so that a mirror could copy it
--timeout: 0s is not above 0
--mirror: is needed
`},
		{"start --mirror m --bootstrap-server a --topics (", `--bootstrap-server: Bootstrap[0] "a": want host:port
include "(": error parsing regexp: missing closing ): ` + "`^(?:()$`\n"},
		{"daemon --state-topic state --salvage " + bad, "--bootstrap-server: is needed, or bootstrap.servers in --command-config\n" +
			"--state-topic: \"state\" does not begin with __, so that a mirror could copy it\n--salvage: " + bad + " is not a folder\n"},
	} {
		t.Run(tt.line, func(t *testing.T) {
			code, stdout, stderr := try(t, strings.Fields(tt.line)...)
			name := "kafka-mirrors " + strings.Fields(tt.line)[0]
			got := strings.ReplaceAll(stderr, name+": ", "")
			want := tt.want + "See '" + name + " --help'.\n"
			if diff := cmp.Diff([]any{exitUsage, "", want}, []any{code, stdout, got}); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRefusals: each thing that does not work has a line and a code.
func TestRefusals(t *testing.T) {
	s := newService(t, "orders")
	produce(t, s.a, "orders", 0, 10, "first")
	daemon := s.daemon(s.b)
	for _, op := range []string{"start --topics x", "stop", "pause", "resume", "recover", "promote", "delete", "describe", "alter --add-config retry.max=1m"} {
		s.says(exitUnknown, op+" --mirror none", `mirror "none": no such mirror`)
	}
	s.says(exitOK, "create --mirror m --mirror-config "+s.file)
	other := file(t, "other.properties", "bootstrap.servers="+s.a+"\n")
	s.says(exitExists, "create --mirror m --mirror-config "+other, "a mirror of that name exists and is another one")
	itself := file(t, "itself.properties", "bootstrap.servers="+s.b+"\n")
	s.says(exitFailed, "create --mirror self --mirror-config "+itself, "source and destination are the same cluster")
	s.says(exitUnknown, "describe --mirror self")
	s.says(exitFailed, "start --mirror m --topics orders,none", "orders: mirroring", "topic none: is not at the source")
	s.says(exitUsage, "start --mirror m --topics __consumer_offsets", "internal topics are never mirrored")
	s.says(exitFailed, "pause --mirror m --topics typo", "topic typo: unknown topic", "the mirror does not have it")
	s.says(exitFailed, "stop --mirror m --exclude .*", "it has no topic that --topics and --exclude mean")
	s.says(exitOK, "create --mirror twin --mirror-config "+s.file)
	s.says(exitState, "start --mirror twin --topics orders", "topic orders: ", `mirror "m"`)
	s.says(exitUsage, "describe --mirror m --topics (", "missing closing )")
	daemon.stop(t)
}

// TestUnreachable: a destination that does not answer, and a source that does not.
func TestUnreachable(t *testing.T) {
	code, _, stderr := try(t, "list", "--bootstrap-server", "127.0.0.1:1", "--timeout", "2s")
	if code != exitUnreachable || !strings.Contains(stderr, "127.0.0.1:1") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	s := newService(t, "orders")
	daemon := s.daemon(s.b)
	dead := file(t, "dead.properties", "bootstrap.servers=127.0.0.1:1\n")
	s.says(exitOK, "create --mirror m --mirror-config "+dead, "m: created", "the daemon runs it, and waits for a cluster: ", "127.0.0.1:1")
	s.says(exitPending, "start --mirror m --topics orders --timeout 3s", "127.0.0.1:1", "topic orders is not mirroring yet", "what is wanted is stored, and goes on")
	s.says(exitUnreachable, "promote --mirror m --timeout 4s", "topics are not known yet", "127.0.0.1:1")
	s.says(exitOK, "alter --mirror m --add-config source.bootstrap.servers="+s.a+" --add-config retry.min=1s", "- source.bootstrap.servers=127.0.0.1:1",
		"+ source.bootstrap.servers="+s.a, "+ retry.min=1s", "m: altered", "m: the daemon runs it")
	consume(t, s.b, "orders", 0, 0)
	s.says(exitOK, "start --mirror m --topics orders", "orders: mirroring, 2 partitions")
	secret := file(t, "secret.properties", "bootstrap.servers="+s.a+"\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=${env:KAFKA_MIRRORS_NONE}\n")
	s.says(exitPending, "create --mirror secret --mirror-config "+secret, "cannot be opened yet", "${env:KAFKA_MIRRORS_NONE}: is not set here")
	s.says(exitOK, "list", "no: open: source: sasl.jaas.config: ${env:KAFKA_MIRRORS_NONE}: is not set here")
	daemon.stop(t)
}

// TestDryRun says what would come of a command, refusals included, and changes nothing.
func TestDryRun(t *testing.T) {
	s := newService(t, "orders")
	daemon := s.daemon(s.b)
	s.says(exitOK, "create --dry-run --mirror m --mirror-config "+s.file, "m: would be created")
	s.says(exitOK, "list", "no mirror is defined")
	s.says(exitOK, "create --mirror m --mirror-config "+s.file)
	s.says(exitOK, "start --mirror m --topics orders")
	before := definitionOf(t, s.b, "m")
	s.says(exitExists, "create --dry-run --mirror m --mirror-config "+file(t, "o.properties", "bootstrap.servers=o:1"), "another one")
	s.says(exitOK, "alter --dry-run --mirror m --delete-config retry.min", "- retry.min=100ms", "m: would be altered")
	s.says(exitUsage, "alter --dry-run --mirror m --add-config scratch=allow", "scratch: needs truncation=rebuild")
	s.says(exitOK, "alter --dry-run --mirror m --add-config retry.min=100ms", "m: nothing changes")
	s.says(exitState, "delete --dry-run --mirror m", "topic orders: the topic is not stopped")
	s.says(exitOK, "start --dry-run --mirror m --topics or.*,more --exclude x", "orders: would be mirroring (now 2 MIRRORING)", "more: would be mirroring (not copied yet)",
		"or.*: what matches at the source would be found")
	for op, done := range map[string]string{"stop": "stopped", "pause": "paused", "promote": "promoted"} {
		s.says(exitOK, op+" --dry-run --mirror m", "orders: would be "+done+" (now 2 MIRRORING)")
	}
	s.says(exitOK, "list", "2 MIRRORING")
	if diff := cmp.Diff(before, definitionOf(t, s.b, "m")); diff != "" {
		t.Errorf("the definition has changed:\n%s", diff)
	}
	daemon.stop(t)
}

func definitionOf(t *testing.T, at, name string) coordinator.Definition {
	t.Helper()
	all, err := stateAt(t, at, "").Definitions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range all {
		if d.Name == name {
			return d
		}
	}
	t.Fatalf("%s is not defined", name)
	return coordinator.Definition{}
}

// TestNoDaemon: without a daemon it is stored what is wanted, and the next one does it.
func TestNoDaemon(t *testing.T) {
	s := newService(t, "orders")
	produce(t, s.a, "orders", 0, 10, "first")
	s.says(exitOK, "create --mirror m --mirror-config "+s.file, "m: no daemon answers; the next one takes it up")
	s.says(exitPending, "start --mirror m --topics orders", "topic orders is not mirroring yet", "no daemon answers")
	s.says(exitOK, "describe --mirror m", "State:       no daemon answers")
	daemon := s.daemon(s.b)
	consume(t, s.b, "orders", 0, 10)
	daemon.until(t, "copied", func() bool { return strings.Contains(daemon.out.String(), "1 topic, 2 MIRRORING") })
	daemon.stop(t)
	s.says(exitPending, "stop --mirror m", "topic orders is not stopped yet", "no daemon answers")
	daemon = s.daemon(s.b)
	s.says(exitOK, "stop --mirror m", "orders: stopped, 2 partitions")
	daemon.stop(t)
}

// TestRecoverCommand: what has failed for good goes on once its cause is gone, and is told when
// it fails again.
func TestRecoverCommand(t *testing.T) {
	s := newService(t, "orders")
	produce(t, s.a, "orders", 0, 10, "first")
	daemon := s.daemon(s.b)
	s.says(exitOK, "create --mirror m --mirror-config "+s.file)
	s.says(exitOK, "start --mirror m --topics orders")
	consume(t, s.b, "orders", 0, 10)
	s.says(exitOK, "stop --mirror m")
	produce(t, s.b, "orders", 1, 3, "local")
	s.says(exitFailed, "start --mirror m --topics orders", " is FAILED: alignment: ")
	s.says(exitFailed, "recover --mirror m", " is FAILED: alignment: ")
	s.says(exitOK, "describe --mirror m --failed", "orders  1          FAILED  not again")
	s.says(exitOK, "alter --mirror m --add-config truncation=rebuild --add-config local.writes=discard", "m: the daemon runs it")
	s.says(exitOK, "recover --mirror m", "orders: mirroring, 2 partitions")
	daemon.stop(t)
}

// TestJudge: a partition is where it is wanted only once it has followed the wish.
func TestJudge(t *testing.T) {
	rec := func(state coordinator.State, intent int64, retriable bool) coordinator.Record {
		return coordinator.Record{Partition: cluster.Partition{Topic: "orders"}, State: state, Intent: intent, Retriable: retriable}
	}
	appended := rec(coordinator.StateUnknown, 5, false)
	appended.Appended = true
	for _, tt := range []struct {
		name string
		rec  coordinator.Record
		want coordinator.State
		is   partitionState
	}{
		{"there", rec(coordinator.StateMirroring, 5, false), coordinator.StateMirroring, there},
		{"there from before", rec(coordinator.StateMirroring, 4, false), coordinator.StateMirroring, onItsWay},
		{"failed before", rec(coordinator.StateFailed, 4, false), coordinator.StateMirroring, onItsWay},
		{"failed", rec(coordinator.StateFailed, 5, false), coordinator.StateMirroring, failedForGood},
		{"failed, tried again", rec(coordinator.StateFailed, 5, true), coordinator.StateMirroring, onItsWay},
		{"failed, to be stopped", rec(coordinator.StateFailed, 5, false), coordinator.StateStopped, onItsWay},
		{"never copied, to be stopped", rec(coordinator.StateUnknown, 5, false), coordinator.StateStopped, there},
		{"copied, to be stopped", appended, coordinator.StateStopped, onItsWay},
		{"never copied, to be paused", rec(coordinator.StateUnknown, 5, false), coordinator.StatePaused, onItsWay},
	} {
		if got := judge(tt.rec, tt.want, 5); got != tt.is {
			t.Errorf("%s: %v, want %v", tt.name, got, tt.is)
		}
	}
}

// TestProgress: a bar on a terminal, lines elsewhere.
func TestProgress(t *testing.T) {
	show := func(width int) string {
		var out output
		p := &progress{streams: streams{out: &out, width: func() int { return width }}, what: "stop m"}
		p.at(0, 4)
		p.at(2, 4)
		p.remark("the source does\nnot answer")
		p.line("orders: stopped, 2 partitions")
		p.at(4, 4)
		p.end()
		return out.String()
	}
	const clear = "\r\x1b[K"
	want := clear + "stop m [                    ] 0 of 4 partitions" + clear + "stop m [==========          ] 2 of 4 partitions" +
		clear + "stop m [==========          ] 2 of 4 partitions, the source …" + clear + "orders: stopped, 2 partitions\n" +
		clear + "stop m [====================] 4 of 4 partitions, the source …" + clear
	if diff := cmp.Diff(want, show(62)); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff("the source does not answer\norders: stopped, 2 partitions\n", show(0)); diff != "" {
		t.Error(diff)
	}
	var out output
	p := &progress{streams: streams{out: &out, width: func() int { return 0 }}, what: "promote m"}
	p.lag(1234)
	p.lag(1000)
	p.told = time.Now().Add(-quiet)
	p.lag(0)
	if diff := cmp.Diff("promote m: 1,234 records behind\npromote m: 0 records behind\n", out.String()); diff != "" {
		t.Error(diff)
	}
}

// TestFailureStands: an old failure that stands there when a wish is followed is no answer, nor is one
// while other partitions of the topic are on their way.
func TestFailureStands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiting{mirror: "m", want: coordinator.StateMirroring, since: map[string]int64{"orders": 5}, why: map[string]string{}, fallen: map[cluster.Partition]fallen{}}
		records := []coordinator.Record{
			{Partition: cluster.Partition{Topic: "orders"}, State: coordinator.StateFailed, Reason: "old", Intent: 5, StateEpoch: 7},
			{Partition: cluster.Partition{Topic: "orders", Partition: 1}, State: coordinator.StateLogAlignment, Intent: 5, StateEpoch: 3},
		}
		for _, step := range []struct {
			change func()
			passes time.Duration
			done   int
			fails  bool
		}{
			{func() {}, 2 * settling, 0, false},
			{func() { records[0].State, records[0].StateEpoch = coordinator.StateLogAlignment, 8 }, 2 * settling, 0, false},
			{func() { records[0].State, records[0].StateEpoch = coordinator.StateFailed, 9 }, 2 * settling, 0, false},
			{func() { records[0].StateEpoch, records[1].State = 10, coordinator.StateMirroring }, settling / 2, 1, false},
			{func() { records[0].StateEpoch = 11 }, settling / 2, 1, false},
			{func() {}, settling, 1, true},
		} {
			step.change()
			w.topic("orders", records)
			pass(step.passes)
			if done, err := w.topic("orders", records); done != step.done || (err != nil) != step.fails {
				t.Errorf("%d are there, %v; want %d, fails: %v", done, err, step.done, step.fails)
			}
		}
	})
}
