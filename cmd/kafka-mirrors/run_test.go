package main

import (
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kfake"
)

// TestRunCopies is the whole way: records arrive at their offsets, what is not
// asked for does not, a signal ends it with the totals.
func TestRunCopies(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(2, "orders.eu", "orders.us", "orders.test"), kfake.SeedTopics(1, "payments"))
	b := newCluster(t, "b")
	produce(t, a, "orders.eu", 0, 50, "early")
	produce(t, a, "orders.eu", 1, 30, "other")
	produce(t, a, "orders.us", 0, 20, "us")
	produce(t, a, "payments", 0, 5, "pay")

	c := start(t, 0, "run", "--source", a, "--destination", b, "--topics", "orders.*", "--exclude", `.*\.test`, "--name", "dr", "--events")
	got := consume(t, b, "orders.eu", 0, 50)
	produce(t, a, "orders.eu", 0, 50, "late")
	got = append(got[:0:0], consume(t, b, "orders.eu", 0, 100)...)
	want := consume(t, a, "orders.eu", 0, 100)
	for i := range want {
		if got[i].Offset != want[i].Offset || string(got[i].Value) != string(want[i].Value) || !got[i].Timestamp.Equal(want[i].Timestamp) {
			t.Fatalf("record %d is %+v, want %+v", i, got[i], want[i])
		}
	}
	consume(t, b, "orders.us", 0, 20)
	consume(t, b, "orders.eu", 1, 30)
	c.until(t, "status line", func() bool {
		return regexp.MustCompile(`(?m)^\S+T\S+ dr: ok \| lag 0 records \| \S+ MB/s, \S+ records/s \| 2 topics, 4 MIRRORING$`).MatchString(c.out.String())
	})
	last := c.stop(t)
	if !regexp.MustCompile(`^\S+T\S+ dr: stopped after \d+s \| 150 records, 0\.\d\d MB copied \| lag 0 records \| 2 topics, 4 MIRRORING$`).MatchString(last) {
		t.Errorf("last line %q", last)
	}
	for _, line := range []string{"orders.eu created\n", "orders.us created\n", "orders.eu-1 LOG_ALIGNMENT -> MIRRORING\n"} {
		if !strings.Contains(c.err.String(), line) {
			t.Errorf("stderr lacks %q:\n%s", line, c.err.String())
		}
	}
	if strings.Contains(c.err.String(), "payments") || strings.Contains(c.err.String(), "test") {
		t.Errorf("topics that were not asked for:\n%s", c.err.String())
	}
}

// TestRunGoesOn: the same command again copies what is new, and only that.
func TestRunGoesOn(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	produce(t, a, "orders", 0, 10, "first")
	settings := file(t, "a.properties", "bootstrap.servers = "+a+"\nclient.id=test\n")
	args := []string{"run", "--source-config", settings, "--destination", b, "--topics", "orders"}
	c := start(t, 0, args...)
	consume(t, b, "orders", 0, 10)
	c.stop(t)
	produce(t, a, "orders", 0, 7, "second")
	c = start(t, 0, args...)
	consume(t, b, "orders", 0, 17)
	c.until(t, "counted", func() bool { return regexp.MustCompile(`lag 0 records .* [1-9] records/s`).MatchString(c.out.String()) })
	if last := c.stop(t); !strings.Contains(last, "| 7 records,") {
		t.Errorf("last line %q", last)
	}
	if c.err.String() != "" {
		t.Errorf("stderr without --events: %s", c.err.String())
	}
}

// TestRunOnTerminal: one status, redrawn in place, and lines above it.
func TestRunOnTerminal(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders")), newCluster(t, "b")
	produce(t, a, "orders", 0, 10, "first")
	c := start(t, 60, "run", "--source", a, "--destination", b, "--topics", "orders,none", "--events")
	c.until(t, "redrawn", func() bool { return strings.Contains(c.out.String(), "none: not at the source\r\x1b[1A\x1b[J") })
	c.until(t, "copied", func() bool { return strings.Contains(c.out.String(), "lag 0") })
	c.stop(t)
	out := c.out.String()
	if strings.Count(out, "\n") != strings.Count(out, "\x1b[1A")+1 {
		t.Errorf("lines went down that were not taken back:\n%q", out)
	}
	if !strings.HasSuffix(out, "1 MIRRORING\n") || !strings.Contains(out, "\x1b[J2") {
		t.Errorf("the last line does not stand where the status was:\n%q", out)
	}
}

func TestRunOneCluster(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "orders"))
	code, _, stderr := try(t, "run", "--source", a, "--destination", a, "--topics", "orders")
	if code != exitFailed || !strings.Contains(stderr, "source and destination are the same cluster") {
		t.Errorf("exit code %d, stderr %q", code, stderr)
	}
}

// TestRunRefusedTopic: a topic with foreign data is refused by a line and below
// the status, the other one goes on.
func TestRunRefusedTopic(t *testing.T) {
	a := newCluster(t, "a", kfake.SeedTopics(1, "orders", "payments"))
	b := newCluster(t, "b", kfake.SeedTopics(3, "orders"))
	produce(t, a, "payments", 0, 10, "good")
	c := start(t, 0, "run", "--source", a, "--destination", b, "--topics", "orders,payments")
	consume(t, b, "payments", 0, 10)
	c.until(t, "event", func() bool { return strings.Contains(c.err.String(), " orders refused: ") })
	c.until(t, "problem", func() bool { return strings.Contains(c.out.String(), " orders refused: ") })
	c.until(t, "health", func() bool { return strings.Contains(c.out.String(), "mirror: failed |") })
	c.stop(t)
}

// TestRunUnreachable: a source that does not answer is shown, and does not end it.
func TestRunUnreachable(t *testing.T) {
	b := newCluster(t, "b")
	c := start(t, 0, "run", "--source", "127.0.0.1:1", "--destination", b, "--topics", "orders", "--log-level", "warn")
	c.until(t, "problem", func() bool { return strings.Contains(c.out.String(), " topics: source cluster id: ") })
	c.until(t, "log", func() bool { return strings.Contains(c.err.String(), `level=WARN msg="topics not synced"`) })
	c.stop(t)
}

func TestBadUsage(t *testing.T) {
	broken := file(t, "broken.properties", "security.protocol=SSL\nssl.keystore.location=/k.jks\nfoo.bar=hidden\nssl.protocols=hidden\n")
	dir := strings.TrimSuffix(broken, "broken.properties")
	tests := []struct {
		name string
		args []string
		want string
	}{
		{"nothing given", []string{"run"}, `kafka-mirrors run: --source: is needed, or bootstrap.servers in --source-config
kafka-mirrors run: --destination: is needed, or bootstrap.servers in --destination-config
kafka-mirrors run: --topics: is needed
See 'kafka-mirrors run --help'.
`},
		{"everything wrong", []string{"run", "--source", "a", "--destination-config", broken, "--topics", "(,__x", "--exclude", "[",
			"--name", "a b", "--sync-interval", "-1s", "--log-level", "loud"},
			`kafka-mirrors run: --log-level: "loud" is not one of off, error, warn, info, debug
kafka-mirrors run: --source: Bootstrap[0] "a": want host:port
kafka-mirrors run: broken.properties: line 2: ssl.keystore.location: needs ssl.keystore.type=PEM; keystores of Java (JKS, PKCS12) are not read
kafka-mirrors run: broken.properties: line 3: foo.bar: unknown key
kafka-mirrors run: broken.properties: line 4: ssl.protocols: unknown key
kafka-mirrors run: --destination: is needed, or bootstrap.servers in --destination-config
kafka-mirrors run: --sync-interval: -1s is not above 0
kafka-mirrors run: name: "a b" has characters other than letters, digits, '.', '_' and '-'
kafka-mirrors run: topic filter "__x": internal topics are never mirrored
kafka-mirrors run: include "(": error parsing regexp: missing closing ): ` + "`^(?:()$`" + `
kafka-mirrors run: exclude "[": error parsing regexp: missing closing ]: ` + "`[)$`" + `
See 'kafka-mirrors run --help'.
`},
		{"every policy and state", []string{"run", "--source", "a:1", "--destination", "b:1", "--topics", "x",
			"--state", "disk", "--peer-state", "memory", "--state-topic", "a b", "--start", "noon", "--retention-gap", "leap",
			"--gap-fill", "zeros", "--max-start-fill", "-1", "--truncation", "cut", "--salvage", broken, "--unclean-recovery", "(,__x"},
			`kafka-mirrors run: --start: "noon" is not one of earliest, latest, a time since 1970 as in 2026-05-01T12:00:00Z
kafka-mirrors run: --retention-gap: "leap" is not one of continue, fail
kafka-mirrors run: --gap-fill: "zeros" is not one of auto, markers, phantoms, fail
kafka-mirrors run: --max-start-fill: -1 is negative
kafka-mirrors run: --truncation: "cut" is not one of refuse, rebuild, join
kafka-mirrors run: --unclean-recovery: topic filter "__x": internal topics are never mirrored
kafka-mirrors run: --unclean-recovery: include "(": error parsing regexp: missing closing ): ` + "`^(?:()$`" + `
kafka-mirrors run: --salvage: broken.properties is not a folder
kafka-mirrors run: --state: "disk" is not one of memory, file:DIR, kafka
kafka-mirrors run: --peer-state: "memory" is not one of none, file:DIR, kafka
kafka-mirrors run: --state-topic: Topic: "a b" is not a legal topic name
See 'kafka-mirrors run --help'.
`},
		{"what does not go together", []string{"run", "--source", "a:1", "--destination", "b:1", "--topics", "x,state",
			"--state", "file:" + dir, "--peer-state", "file:" + dir, "--state-topic", "state", "--unclean-recovery", "x",
			"--discard-local-writes", "--scratch", "--salvage", "x", "--no-salvage"},
			`kafka-mirrors run: --topics: state is the topic of --state-topic, which is never mirrored
kafka-mirrors run: --unclean-recovery: needs --truncation rebuild or join
kafka-mirrors run: --discard-local-writes: needs --truncation rebuild or join
kafka-mirrors run: --scratch: needs --truncation rebuild or join
kafka-mirrors run: --no-salvage: and --salvage exclude each other
kafka-mirrors run: --peer-state:  is the folder of --state: mirrors into each cluster have one of their own
kafka-mirrors run: --state-topic: needs --state kafka or --peer-state kafka
See 'kafka-mirrors run --help'.
`},
		{"what a cut by joining has not", []string{"run", "--source", "a:1", "--destination", "b:1", "--topics", "x", "--truncation", "join",
			"--join", "900-902", "--join-listener", "PLAINTEXT://h:1", "--join-availability", "open", "--no-salvage"},
			`kafka-mirrors run: --join-availability: is of topics that we lead; with --truncation join real brokers lead them
See 'kafka-mirrors run --help'.
`},
		{"folders", []string{"run", "--source", "a:1", "--destination", "b:1", "--topics", "x", "--state", "file:",
			"--peer-state", "file:" + dir + "none", "--salvage", ""},
			`kafka-mirrors run: --salvage: names no folder; --no-salvage keeps nothing
kafka-mirrors run: --state: file: names no folder
kafka-mirrors run: --peer-state: stat none: no such file or directory
See 'kafka-mirrors run --help'.
`},
		{"no such file", []string{"run", "--source-config", dir + "none", "--destination", "b:1", "--topics", "x"},
			`kafka-mirrors run: none: no such file or directory
kafka-mirrors run: --source: is needed, or bootstrap.servers in --source-config
See 'kafka-mirrors run --help'.
`},
		{"unknown flag", []string{"run", "--sorce", "x"}, "kafka-mirrors run: unknown flag: --sorce\nSee 'kafka-mirrors run --help'.\n"},
		{"no flag", []string{"run", "orders"}, "kafka-mirrors run: \"orders\" is not a flag; every argument of run is one\nSee 'kafka-mirrors run --help'.\n"},
		{"unknown command", []string{"rum"}, "kafka-mirrors: unknown command \"rum\" (did you mean run?)\nSee 'kafka-mirrors --help'.\n"},
		{"verify", []string{"verify", "--source", "a:0", "--topics", ""}, `kafka-mirrors verify: --source: Bootstrap[0] "a:0": port "0" is not a number from 1 to 65535
kafka-mirrors verify: --destination: is needed, or bootstrap.servers in --destination-config
kafka-mirrors verify: --topics: is needed
See 'kafka-mirrors verify --help'.
`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			code, stdout, stderr := try(t, tt.args...)
			if code != exitUsage || stdout != "" {
				t.Errorf("exit code %d, stdout %q", code, stdout)
			}
			if diff := cmp.Diff(tt.want, strings.ReplaceAll(stderr, dir, "")); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestHelpAndVersion(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string
	}{
		{nil, "kafka-mirrors verify --source"},
		{[]string{"run", "--help"}, "Exit codes: 0 stopped by a signal;"},
		{[]string{"verify", "--help"}, "3 something is different"},
		{[]string{"version"}, "kafka-mirrors "},
		{[]string{"completion", "bash"}, "__start_kafka-mirrors"},
	} {
		code, stdout, stderr := try(t, tt.args...)
		if code != exitOK || stderr != "" || !strings.Contains(stdout, tt.want) {
			t.Errorf("%q: exit code %d, stderr %q, stdout lacks %q:\n%s", tt.args, code, stderr, tt.want, stdout)
		}
	}
}

func TestSignals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal, 2)
		again := 0
		ctx := interruptible(t.Context(), signals, func() { again++ })
		time.Sleep(time.Hour)
		if ctx.Err() != nil {
			t.Fatal("ended without a signal")
		}
		signals <- os.Interrupt
		synctest.Wait()
		if ctx.Err() == nil || again != 0 {
			t.Fatalf("after one signal: %v, again %d", ctx.Err(), again)
		}
		signals <- os.Interrupt
		synctest.Wait()
		if again != 1 {
			t.Fatalf("after two signals: again %d", again)
		}
	})
}
