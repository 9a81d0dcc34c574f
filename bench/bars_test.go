package bench

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"text/tabwriter"
)

// shared is by how much a bar may be missed before a test fails: machines of CI
// are shared, and other work shows in processor time too.
const shared = 5

// row is what was measured of one data set.
type row struct {
	set  set
	wire int64 // bytes
	runs map[string][]run
}

// median of one figure over the runs of a contestant.
func (r row) median(name string, of func(run) float64) float64 {
	var all []float64
	for _, one := range r.runs[name] {
		all = append(all, of(one))
	}
	slices.Sort(all)
	if len(all) == 0 {
		return 0
	}
	return all[len(all)/2]
}

// cpu is in seconds per GB of batches as they are on the wire.
func (r row) cpu(name string) float64 {
	return r.median(name, func(u run) float64 { return u.CPU }) / float64(r.wire) * 1e9
}

// bar is one promise about a row.
type bar struct {
	what        string
	have, allow float64 // ratio of CPU-seconds
}

func (b bar) holds() bool { return b.have <= b.allow }

func (b bar) String() string {
	verdict := "holds"
	if !b.holds() {
		verdict = "MISSED"
	}
	return fmt.Sprintf("%-7s %s: %.2f, bar %.1f", verdict, b.what, b.have, b.allow)
}

// bars are the promises for a row. Between 16 and 256 KiB there is none about the
// pipe, and none about franz-go for small uncompressed batches, which it merges.
func (r row) bars() (out []bar) {
	allow := 0.0
	switch {
	case r.set.batch >= 256<<10:
		allow = 2
	case r.set.batch == 16<<10:
		allow = 3.5
	}
	if allow > 0 {
		out = append(out, bar{r.set.name + " mirror/pipe", r.cpu("mirror") / r.cpu("pipe"), allow})
	}
	if r.set.codec != "none" || r.set.batch >= 64<<10 {
		out = append(out, bar{r.set.name + " mirror/loop", r.cpu("mirror") / r.cpu("loop"), 1})
	}
	return out
}

// report writes a table of all rows and then the bars.
func report(w io.Writer, rows []row) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "data\twho\tCPU-s/GB wire\tCPU-s/GB values\tin kernel\tof pipe\tof loop\tMB/s values\tpeak MB\tread x\tKB/read\tKB/write\tsource CPU-s/GB\tdest CPU-s/GB\tothers\t")
	for _, r := range rows {
		for _, name := range []string{"mirror", "pipe", "loop"} {
			r.line(t, name)
		}
	}
	t.Flush()
	for _, r := range rows {
		for _, b := range r.bars() {
			fmt.Fprintln(w, b)
		}
	}
}

func (r row) line(w io.Writer, name string) {
	values := float64(r.set.valueBytes())
	ratio := func(to string) string {
		if name != "mirror" {
			return "" // only ours is compared
		}
		return fmt.Sprintf("%.2f", r.cpu(name)/r.cpu(to))
	}
	seconds := r.median(name, func(u run) float64 { return u.Seconds })
	kernel := r.median(name, func(u run) float64 { return u.System / cmp.Or(u.CPU, 1) })
	peak := r.median(name, func(u run) float64 { return float64(u.Peak) })
	source := r.median(name, func(u run) float64 { return u.source })
	destination := r.median(name, func(u run) float64 { return u.destination })
	read := r.median(name, func(u run) float64 { return float64(u.Read) })
	reads := r.median(name, func(u run) float64 { return float64(u.Reads) })
	writes := r.median(name, func(u run) float64 { return float64(u.Writes) })
	other := r.median(name, func(u run) float64 { return u.other })
	wire := float64(r.wire)
	fmt.Fprintf(w, "%s\t%s\t%.2f\t%.2f\t%.0f%%\t%s\t%s\t%.0f\t%.0f\t%.2f\t%.1f\t%.1f\t%.2f\t%.2f\t%.0f%%\t\n",
		r.set.name, name, r.cpu(name), r.cpu(name)*wire/values, 100*kernel, ratio("pipe"), ratio("loop"),
		values/1e6/seconds, peak/1e6, read/wire, read/1e3/cmp.Or(reads, 1), wire/1e3/cmp.Or(writes, 1),
		source/wire*1e9, destination/wire*1e9, 100*other)
}
