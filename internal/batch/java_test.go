package batch

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// The Java client's own framing of each codec, from the segments of a broker.
func TestDecodesWhatJavaWrites(t *testing.T) {
	var d Decoder
	for _, codec := range codecs[1:] {
		t.Run(codec.String(), func(t *testing.T) {
			segment, err := os.ReadFile(filepath.Join("testdata", "java", codec.String()+".log"))
			if err != nil {
				t.Fatal(err)
			}
			n, most := 0, int64(-1)
			w := Walk(segment)
			for w.Next() {
				h := w.Header()
				if err := h.Check(); err != nil {
					t.Fatal(err)
				}
				if h.Codec() != codec || h.Base() != 0 || h.Next() != 1500 || h.Count() != 1500 || h.LeaderEpoch() != 0 || h.ProducerEpoch() != 0 || h.BaseSequence() != 0 {
					t.Errorf("header: %v [%d,%d) count %d epoch %d", h.Codec(), h.Base(), h.Next(), h.Count(), h.LeaderEpoch())
				}
				err := d.Decode(h, func(r Record) error {
					if want := fmt.Sprintf("line %05d of the Java producer", n); string(r.Value) != want || r.Offset != int64(n) || r.Key != nil || r.Headers != nil {
						t.Fatalf("record %d: %+v", n, r)
					}
					n++
					most = max(most, r.Timestamp)
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				if most != h.MaxTimestamp() {
					t.Errorf("largest timestamp %d, header says %d", most, h.MaxTimestamp())
				}
			}
			if n != 1500 || w.Err() != nil || len(w.Rest()) > 0 {
				t.Errorf("%d records, %v, %d bytes left", n, w.Err(), len(w.Rest()))
			}
		})
	}
}
