package preflight

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode"
)

// Severity says how bad a finding is.
type Severity string

// The severities, worst first.
const (
	// Blocks: what it concerns will not be mirrored, or will stop for certain.
	Blocks Severity = "blocks"
	// Loses: the mirror runs, and something is not brought over, or is gone earlier than at
	// the source.
	Loses Severity = "loses"
	// Warns: it may stop later, or cannot be told.
	Warns Severity = "warns"
)

var order = map[Severity]int{Blocks: 0, Loses: 1, Warns: 2}

// Finding is one thing that would go wrong. Those that differ only in the topics, or
// groups, are one.
type Finding struct {
	Severity Severity `json:"severity"`
	// Code names the kind of finding; it is stable.
	Code string `json:"code"`
	// Cluster is the side; empty when it is of both.
	Cluster Side `json:"cluster,omitempty"`
	// Topics, Groups and Broker (id at address) say where; all empty: everywhere.
	Topics []string `json:"topics,omitempty"`
	Groups []string `json:"groups,omitempty"`
	Broker string   `json:"broker,omitempty"`
	// Permission is what is missing; Setting the setting it is about.
	Permission *Permission `json:"permission,omitempty"`
	Setting    string      `json:"setting,omitempty"`
	What       string      `json:"what"`
	Why        string      `json:"why"`
	Do         string      `json:"do"`
}

// Permission is an ACL operation on a resource, both as kafka-acls.sh names them.
type Permission struct {
	Resource  string `json:"resource"` // cluster, topic or group
	Operation string `json:"operation"`
}

// Report is what Judge finds, worst first.
type Report struct {
	Mirror string `json:"mirror"`
	// Ready: nothing blocks.
	Ready bool `json:"ready"`
	// Source and Destination are cluster ids, empty when not reached.
	Source      string           `json:"source,omitempty"`
	Destination string           `json:"destination,omitempty"`
	Topics      int              `json:"topics"`
	Counts      map[Severity]int `json:"counts"`
	Findings    []Finding        `json:"findings"`
}

// key is what findings have in common that are told as one.
func (f *Finding) key() string {
	p := Permission{}
	if f.Permission != nil {
		p = *f.Permission
	}
	return strings.Join([]string{string(f.Severity), f.Code, string(f.Cluster), f.Broker, p.Resource, p.Operation, f.Setting, f.What, f.Why, f.Do}, "\x00")
}

// findings collects, and joins what is told as one.
type findings struct {
	all []*Finding
	by  map[string]*Finding
}

func (fs *findings) add(f Finding) {
	k := f.key()
	if is := fs.by[k]; is != nil && len(f.Topics)+len(f.Groups) > 0 {
		is.Topics, is.Groups = append(is.Topics, f.Topics...), append(is.Groups, f.Groups...)
		return
	}
	if fs.by == nil {
		fs.by = map[string]*Finding{}
	}
	fs.by[k] = &f
	fs.all = append(fs.all, &f)
}

// report sorts: by severity, the source first, then by code and by what it says.
func (fs *findings) report(f *Facts) *Report {
	r := &Report{
		Mirror: f.Mirror, Source: f.Source.ID, Destination: f.Destination.ID, Topics: len(f.Topics),
		Counts: map[Severity]int{Blocks: 0, Loses: 0, Warns: 0}, Findings: make([]Finding, 0, len(fs.all)),
	}
	for _, one := range fs.all {
		slices.Sort(one.Topics)
		one.Topics = slices.Compact(one.Topics)
		slices.Sort(one.Groups)
		one.Groups = slices.Compact(one.Groups)
		r.Counts[one.Severity]++
		r.Findings = append(r.Findings, *one)
	}
	side := map[Side]int{"": 0, Source: 1, Destination: 2}
	slices.SortStableFunc(r.Findings, func(a, b Finding) int {
		return cmp.Or(cmp.Compare(order[a.Severity], order[b.Severity]), cmp.Compare(side[a.Cluster], side[b.Cluster]),
			cmp.Compare(a.Code, b.Code), cmp.Compare(a.Broker, b.Broker), cmp.Compare(a.What, b.What))
	})
	r.Ready = r.Counts[Blocks] == 0
	return r
}

// Err joins what blocks; nil when nothing does.
func (r *Report) Err() error {
	var errs []error
	for _, f := range r.Findings {
		if f.Severity == Blocks {
			errs = append(errs, errors.New(f.String()))
		}
	}
	return errors.Join(errs...)
}

// String is the finding in one line.
func (f Finding) String() string { return f.where() + ": " + f.What }

// shown is how many topics or groups a line names.
const shown = 5

func (f Finding) where() string {
	at := []string{cmp.Or(string(f.Cluster), "both clusters")}
	if f.Broker != "" {
		at = append(at, "broker "+f.Broker)
	}
	at = append(at, some("topic", f.Topics)...)
	return strings.Join(append(at, some("group", f.Groups)...), ", ")
}

func some(kind string, names []string) []string {
	switch {
	case len(names) == 0:
		return nil
	case len(names) == 1:
		return []string{kind + " " + names[0]}
	case len(names) <= shown:
		return []string{kind + "s " + listed(names)}
	}
	return []string{fmt.Sprintf("%ss %s and %d more", kind, listed(names[:shown]), len(names)-shown)}
}

// WriteTo writes the report as text, for a person to read.
func (r *Report) WriteTo(w io.Writer) (int64, error) {
	var b strings.Builder
	fmt.Fprintf(&b, "mirror       %s, %s\n", r.Mirror, counted(r.Topics, "topic"))
	fmt.Fprintf(&b, "source       %s\n", cmp.Or(r.Source, "not reached"))
	fmt.Fprintf(&b, "destination  %s\n", cmp.Or(r.Destination, "not reached"))
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "\n%-6s  %s\n        %s\n        why: %s\n        do:  %s\n", strings.ToUpper(string(f.Severity)), printed(f.where()), printed(f.What), f.Why, f.Do)
	}
	switch {
	case len(r.Findings) == 0:
		b.WriteString("\nready: nothing was found\n")
	case r.Ready:
		fmt.Fprintf(&b, "\nready: nothing blocks, %d lose, %d warn\n", r.Counts[Loses], r.Counts[Warns])
	default:
		fmt.Fprintf(&b, "\nnot ready: %d block, %d lose, %d warn\n", r.Counts[Blocks], r.Counts[Loses], r.Counts[Warns])
	}
	n, err := io.WriteString(w, b.String())
	return int64(n), err
}

// printed is a text that may come from elsewhere, its lines below each other, without what would
// move a terminal's cursor.
func printed(text string) string {
	clean := strings.Map(func(r rune) rune {
		if r != '\n' && unicode.IsControl(r) {
			return '\uFFFD'
		}
		return r
	}, text)
	return strings.ReplaceAll(clean, "\n", "\n        ")
}

func counted(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
