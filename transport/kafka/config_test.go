package kafka

import (
	"strings"
	"testing"
	"time"
)

func TestValidateReportsEveryField(t *testing.T) {
	err := Config{Bootstrap: []string{"a:1", "nohost", ":9", "b:0", "[::1]:9092"}, DialTimeout: -1, RequestTimeout: -time.Second, MaxStartFill: -1, Truncation: 7, GapFill: 9}.Validate()
	if err == nil {
		t.Fatal("accepted")
	}
	lines := strings.Split(err.Error(), "\n")
	for _, want := range []string{"Bootstrap[1]", "Bootstrap[2]", "Bootstrap[3]", "DialTimeout", "RequestTimeout", "MaxStartFill", "Truncation", "GapFill"} {
		if n := strings.Count(err.Error(), want); n != 1 {
			t.Errorf("%s is named %d times in:\n%v", want, n, err)
		}
	}
	if len(lines) != 8 {
		t.Errorf("%d complaints, want 8:\n%v", len(lines), err)
	}
	if err := (Config{}).Validate(); err == nil || !strings.Contains(err.Error(), "Bootstrap") {
		t.Errorf("no bootstrap: %v", err)
	}
	if _, err := New(Config{Bootstrap: []string{"broker-1.example:9092"}}); err != nil {
		t.Error(err)
	}
}
