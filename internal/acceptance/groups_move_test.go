package acceptance

import (
	"testing"
	"time"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/internal/kafkatest"
)

// moveTo has the members enter at another cluster, without what they remember of the first.
func (a *crowd) moveTo(c *kafkatest.Cluster, audience *audience) {
	a.c = c
	a.each(func(l *listener) {
		l.enter = entrance(a.t, c, audience, l.family, a.topic, l.group)
		l.again()
	})
}

// TestGroupsMoveOver: members of groups of all families of clients read half a topic at the source and, after
// a promote, the rest at the destination: no record twice, none left out (C7.19).
func TestGroupsMoveOver(t *testing.T) {
	src, dst, audience := source(t), destination(t), invite(t)
	const topic, parts = "groups-move", 2
	src.CreateTopic(t, topic, parts, 1, nil)
	note(t, src, topic, "first", sized(300, 20_000), 0, 1)
	m := run(t, topic, connect(t, src), connect(t, dst), mirror.Options{Topics: mirror.Topics{Include: []string{topic}}, GroupInterval: time.Hour})
	all := gather(t, src, audience, topic, topic+"-")
	all.hear("at the source")
	all.each((*listener).leave)
	note(t, src, topic, "second", sized(300, 20_000), 0, 1)
	if err := m.Promote(timeout(t, time.Minute), topic); err != nil {
		t.Fatal(err)
	}
	note(t, dst, topic, "third", 1, 0, 1) // behind the fence of the stop
	all.moveTo(dst, audience)
	all.hear("at the destination")
	all.each((*listener).leave)
	all.heard(standing(t, dst, topic, parts))
}
