package acceptance

import (
	"slices"
	"testing"
	"time"

	"github.com/clustermirror/mirror/internal/kafkatest"
)

// TestJoinedReadersOfTail: consumers live on at a site whose last records never came over,
// have read those, and see them go at the failback. Clients that compare leader epochs
// (KIP-320) go on where the logs part; those that do not find their offset out of range:
// librdkafka of this age begins where its group would, kafka-go waits until the log has
// come so far again, and never sees what was written instead. In the long form.
func TestJoinedReadersOfTail(t *testing.T) {
	for range sized(0, 1) {
		_, a := sites(t) // of a version that can be joined
		b := joinable(t, "4.4.0")
		v := &voyage{t: t, topic: "tail", parts: 1, us: map[*kafkatest.Cluster]*member{
			a: {t: t, k: a, first: 180}, b: {t: t, k: b, first: 180},
		}}
		a.CreateTopic(t, v.topic, v.parts, 3, nil)
		note(t, a, v.topic, "first", 100, 0)
		there := v.sail("tail-there", a, b)
		home := gather(t, a, invite(t), v.topic, "tail-")
		home.hear("at home")
		for _, link := range there.network.Links(a.Bootstrap()...) {
			link.Blackhole(true)
		}
		note(t, a, v.topic, "lost", 30, 0)
		home.hear("with what is lost")
		before := standing(t, a, v.topic, v.parts)[0]
		there.land(v.topic, true)
		note(t, b, v.topic, "after", 10, 0)

		back := v.sail("tail-back", b, a)
		note(t, b, v.topic, "more", 60, 0)
		caughtUp(t, time.Minute, b, a, v.topic)
		home.hear("what was written instead")
		back.land(v.topic, false)
		note(t, a, v.topic, "at home", 10, 0)
		home.hear("after the failback")
		now := standing(t, a, v.topic, v.parts)[0]
		from := map[string]int{"librdkafka": 0, "kafka-go": 130}
		for _, l := range home.members {
			at, other := from[l.family]
			if !other {
				at = 100
			}
			if diff := parts(slices.Concat(before, now[at:]), l.saw[0]); diff != "" {
				t.Errorf("%s: %s; it said %q", l.family, diff, l.remarks)
			}
		}
		for _, us := range v.us {
			us.away()
		}
	}
}
