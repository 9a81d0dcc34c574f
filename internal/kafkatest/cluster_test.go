package kafkatest

import "testing"

func TestStart(t *testing.T) {
	for _, v := range Versions() {
		t.Run(v, func(t *testing.T) {
			c := Start(t, Options{Version: v})
			t.Log(c.Bootstrap(), c.CPUSeconds())
		})
	}
}
