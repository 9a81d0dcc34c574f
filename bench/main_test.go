package bench

import (
	"flag"
	"testing"

	"go.uber.org/goleak"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

var (
	full    = flag.Bool("full", false, "all data sets, larger, medians of 3")
	profile = flag.String("profile", "", "folder for CPU profiles of the mirror's processes")
	only    = flag.String("set", "", "regular expression: only these data sets")

	partitionBytes = flag.Int("partition", 0, "bytes asked for of each partition (fetcher.Options)")
	responseBytes  = flag.Int("response", 0, "bytes of one answer (fetcher.Options)")
	budgetBytes    = flag.Int("budget", 0, "bytes of all answers (fetcher.Options)")
)

func TestMain(m *testing.M) {
	for name, run := range contestants {
		kafkatest.Child(name, child(run))
	}
	kafkatest.Child("ends", child(runEnds))
	kafkatest.Child("hot", hotChild)
	goleak.VerifyTestMain(kafkatest.Suite{M: m})
}
