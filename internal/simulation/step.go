package simulation

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Op is what a step does.
type Op string

// What can happen. The comment names the fields that are used.
const (
	Produce   Op = "produce"    // At, P, N records in batches of Size
	Begin     Op = "begin"      // At, P, N: a transaction of producer N begins and writes a batch of Size
	Commit    Op = "commit"     // At, P, N
	Abort     Op = "abort"      // At, P, N
	Elect     Op = "elect"      // At, P, Broker: a replica in sync leads
	Lag       Op = "lag"        // At, P, Broker: a follower stands still
	Unlag     Op = "unlag"      // At, P, Broker
	Unclean   Op = "unclean"    // At, P, Broker: leads whatever it lacks
	Down      Op = "down"       // At, Broker: stops
	Up        Op = "up"         // At, Broker
	Freeze    Op = "freeze"     // At, P: answers nothing
	Thaw      Op = "thaw"       // At, P
	Trim      Op = "trim"       // At, P, N: records below it are deleted
	Expand    Op = "expand"     // At, N: partitions
	Recreate  Op = "recreate"   // At: the topic is deleted and made anew
	Delete    Op = "delete"     // At: the topic is deleted
	Group     Op = "group"      // At, P, N: a group commits
	Start     Op = "start"      // Mirror: runs, and the topic is started
	Stop      Op = "stop"       // Mirror
	Promote   Op = "promote"    // Mirror
	Pause     Op = "pause"      // Mirror
	Resume    Op = "resume"     // Mirror
	Recover   Op = "recover"    // Mirror
	Close     Op = "close"      // Mirror: its process ends as it should
	Run       Op = "run"        // Mirror: a process runs again
	Crash     Op = "crash"      // Mirror: its process dies, and with N > 0 at its N-th call (of kind Call) from now, with Size > 0 when that has been carried out
	Takeover  Op = "takeover"   // Mirror: a second process; the first goes on
	Suspend   Op = "suspend"    // Mirror: the process stands still, and what it has sent waits
	Wake      Op = "wake"       // Mirror: all suspended processes of it go on
	Lose      Op = "lose"       // Mirror: the next N requests of kind Call are lost
	LoseReply Op = "lose-reply" // Mirror, N, Call: carried out, but not answered
	Late      Op = "late"       // Mirror, N, Call, For: carried out later
	LateReply Op = "late-reply" // Mirror, N, Call, For: answered later
	Storeless Op = "storeless"  // At, For: the store of mirrors into a cluster refuses
	Pass      Op = "pass"       // everything goes on as far as it can in no time
	Advance   Op = "advance"    // For
	Settle    Op = "settle"     // everything is healed, and has to come to rest as it should
	Dump      Op = "dump"       // At: shows logs (scripts)
	Status    Op = "status"     // Mirror: shows states (scripts)
)

// Step is one line of a schedule. It is a value.
type Step struct {
	Op     Op
	At     string // cluster
	Mirror string // source and destination: "AB"
	P      int32
	N      int64
	Size   int64
	Broker int32
	Call   string // memory.Call, or "store"; empty: any
	For    time.Duration
}

// String is the line that Parse reads.
func (s Step) String() string {
	var b strings.Builder
	b.WriteString(string(s.Op))
	put := func(key, value string) { fmt.Fprintf(&b, " %s=%s", key, value) }
	number := func(key string, n int64) {
		if n != 0 {
			put(key, strconv.FormatInt(n, 10))
		}
	}
	if s.At != "" {
		put("at", s.At)
	}
	if s.Mirror != "" {
		put("mirror", s.Mirror)
	}
	number("p", int64(s.P))
	number("n", s.N)
	number("size", s.Size)
	number("broker", int64(s.Broker))
	if s.Call != "" {
		put("call", s.Call)
	}
	if s.For != 0 {
		put("for", s.For.String())
	}
	return b.String()
}

// ops is what each step needs beside its name.
func ops() map[Op]string {
	at, mirror := "at", "mirror"
	return map[Op]string{
		Produce: at, Begin: at, Commit: at, Abort: at, Elect: at, Lag: at, Unlag: at, Unclean: at, Down: at, Up: at,
		Freeze: at, Thaw: at, Trim: at, Expand: at, Recreate: at, Delete: at, Group: at, Storeless: at, Dump: at,
		Start: mirror, Stop: mirror, Promote: mirror, Pause: mirror, Resume: mirror, Recover: mirror, Close: mirror,
		Run: mirror, Crash: mirror, Takeover: mirror, Suspend: mirror, Wake: mirror, Lose: mirror, LoseReply: mirror,
		Late: mirror, LateReply: mirror, Status: mirror, Advance: "for", Settle: "", Pass: "",
	}
}

// NewStep makes a step of a name and its arguments.
func NewStep(name string, args map[string]string) (Step, error) {
	s := Step{Op: Op(name)}
	need, ok := ops()[s.Op]
	if !ok {
		return s, fmt.Errorf("step %q is not known", name)
	}
	if need != "" && args[need] == "" {
		return s, fmt.Errorf("%s needs %s=", name, need)
	}
	for key, value := range args {
		if err := s.set(key, value); err != nil {
			return s, fmt.Errorf("%s: %s=%s: %w", name, key, value, err)
		}
	}
	return s, nil
}

func (s *Step) set(key, value string) (err error) {
	number := func(bits int) (n int64) {
		n, err = strconv.ParseInt(value, 10, bits)
		return n
	}
	switch key {
	case "at":
		s.At = value
	case "mirror":
		if s.Mirror = value; len(value) != 2 || value[0] == value[1] {
			err = fmt.Errorf("is no pair of clusters")
		}
	case "p":
		s.P = int32(number(32))
	case "n":
		s.N = number(64)
	case "size":
		s.Size = number(64)
	case "broker":
		s.Broker = int32(number(32))
	case "call":
		s.Call = value
	case "for":
		s.For, err = time.ParseDuration(value)
	default:
		err = fmt.Errorf("is not known")
	}
	return err
}

// words splits a line into its name and arguments.
func words(line string) (name string, args map[string]string, err error) {
	args = map[string]string{}
	for i, word := range strings.Fields(line) {
		key, value, pair := strings.Cut(word, "=")
		switch {
		case i == 0:
			name = word
		case !pair || value == "":
			return "", nil, fmt.Errorf("%q is no key=value", word)
		default:
			args[key] = value
		}
	}
	return name, args, nil
}

// Schedule is a world and what happens in it.
type Schedule struct {
	Setup Setup
	Steps []Step
}

// String is the text that Parse reads: a line for the setup, one for each step.
func (s Schedule) String() string {
	var b strings.Builder
	b.WriteString(s.Setup.String() + "\n")
	for _, step := range s.Steps {
		b.WriteString(step.String() + "\n")
	}
	return b.String()
}

// Parse reads a schedule. Empty lines, lines that begin with # and the outputs of
// scripts (from ---- to the next empty line) are left out.
func Parse(text string) (s Schedule, err error) {
	output := false
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch {
		case line == "":
			output = false
			continue
		case line == "----":
			output = true
		}
		if output || strings.HasPrefix(line, "#") {
			continue
		}
		name, args, err := words(line)
		if err == nil && name == "setup" {
			s.Setup, err = NewSetup(args)
		} else if err == nil {
			var step Step
			step, err = NewStep(name, args)
			s.Steps = append(s.Steps, step)
		}
		if err != nil {
			return s, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	return s, nil
}

// Setup is the world of a schedule and the options of its mirrors.
type Setup struct {
	Partitions int64
	Kind       string // of all clusters as destinations: "keeps" epochs, has "own" ones, or is written to by "produce" requests
	Unclean    bool   // Options.UncleanRecovery
	Discard    bool   // Options.DiscardLocalWrites
	Scratch    bool   // Options.Scratch
	GapFails   bool   // Options.Fetch.RetentionGap
	Without    string // names of rules and steps that are switched off, between commas
}

// off reports whether a rule is switched off.
func (s Setup) off(rule string) bool { return slices.Contains(strings.Split(s.Without, ","), rule) }

// String is the line that Parse reads.
func (s Setup) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "setup partitions=%d kind=%s", s.Partitions, s.Kind)
	for _, o := range s.switches() {
		if *o.on {
			fmt.Fprintf(&b, " %s=on", o.name)
		}
	}
	if s.Without != "" {
		fmt.Fprintf(&b, " without=%s", s.Without)
	}
	return b.String()
}

type option struct {
	name string
	on   *bool
}

func (s *Setup) switches() []option {
	return []option{{"unclean", &s.Unclean}, {"discard", &s.Discard}, {"scratch", &s.Scratch}, {"gapfails", &s.GapFails}}
}

// NewSetup reads the arguments of a setup line.
func NewSetup(args map[string]string) (Setup, error) {
	s := Setup{Partitions: 1, Kind: cmp.Or(args["kind"], "keeps"), Without: args["without"]}
	if !slices.Contains([]string{"keeps", "own", "produce"}, s.Kind) {
		return s, fmt.Errorf("setup: kind=%s is not known", s.Kind)
	}
	for key, value := range args {
		i := slices.IndexFunc(s.switches(), func(o option) bool { return o.name == key })
		switch {
		case i >= 0 && (value == "on" || value == "off"):
			*s.switches()[i].on = value == "on"
		case key == "kind", key == "without":
		case key == "partitions":
			var err error
			if s.Partitions, err = strconv.ParseInt(value, 10, 32); err != nil || s.Partitions < 1 {
				return s, fmt.Errorf("setup: partitions=%s", value)
			}
		default:
			return s, fmt.Errorf("setup: %s=%s is not known", key, value)
		}
	}
	return s, nil
}
