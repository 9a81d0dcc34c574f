package wire

import (
	"net"
	"slices"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestApiVersionsFallback(t *testing.T) {
	for name, tc := range map[string]struct {
		knows int16 // newest ApiVersions of the broker
		names bool  // it names that in its refusal (Kafka 2.4 and later)
		want  []int16
	}{
		"Kafka 2.4 and later":     {3, true, []int16{3}},
		"names what it knows":     {2, true, []int16{3, 2}},
		"does not":                {2, false, []int16{3, 0}},
		"claims what it refuses":  {3, true, []int16{3}},
		"knows nothing but zero":  {0, true, []int16{3, 0}},
		"one below, without list": {1, false, []int16{3, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			seen := make(chan int16, 10)
			addr := listen(t, func(conn net.Conn) {
				defer conn.Close()
				for {
					r, err := readRequest(conn)
					if err != nil {
						return
					}
					seen <- r.version
					if r.version <= tc.knows {
						r.versions(map[int16]versionRange{18: {0, tc.knows}, 3: {1, 7}})
						continue
					}
					resp := kmsg.NewPtrApiVersionsResponse()
					resp.ErrorCode = 35
					if tc.names {
						resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: tc.knows}}
					}
					r.answer(resp.AppendTo(nil))
				}
			})
			c := mustDial(t, addr, nil)
			if c.MaxVersion(3) != 7 || c.MinVersion(3) != 1 {
				t.Errorf("versions of Metadata: %d to %d, want 1 to 7", c.MinVersion(3), c.MaxVersion(3))
			}
			var got []int16
			for len(seen) > 0 {
				got = append(got, <-seen)
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("asked in versions %v, want %v", got, tc.want)
			}
		})
	}
}

// A broker that refuses every version must not be asked for ever.
func TestApiVersionsRefused(t *testing.T) {
	addr := listen(t, func(conn net.Conn) {
		for {
			r, err := readRequest(conn)
			if err != nil {
				return
			}
			resp := kmsg.NewPtrApiVersionsResponse()
			resp.ErrorCode = 35
			resp.ApiKeys = []kmsg.ApiVersionsResponseApiKey{{ApiKey: 18, MaxVersion: 9}}
			r.answer(resp.AppendTo(nil))
		}
	})
	if _, err := Dial(testContext(t), addr, nil); err == nil {
		t.Error("no error")
	}
}
