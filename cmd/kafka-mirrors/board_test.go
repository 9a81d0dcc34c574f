package main

import (
	"encoding/json"
	"io"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/clustermirror/mirror/cmd/kafka-mirrors/internal/statuspage"
)

// served waits for the address of a command's status page, and gives what fetches it.
func served(t *testing.T, c *command) func(path string) (int, string) {
	t.Helper()
	address := regexp.MustCompile(`status: (http://127\.0\.0\.1:\d+)/\n`)
	c.until(t, "address", func() bool { return address.MatchString(c.err.String()) })
	base := address.FindStringSubmatch(c.err.String())[1]
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	return func(path string) (int, string) {
		t.Helper()
		r, err := client.Get(base + path)
		if err != nil {
			return 0, err.Error()
		}
		defer r.Body.Close()
		text, err := io.ReadAll(r.Body)
		if err != nil {
			t.Fatal(err)
		}
		return r.StatusCode, string(text)
	}
}

// TestDaemonBoard: the daemon's mirrors are on the page, with health and events, until it ends.
func TestDaemonBoard(t *testing.T) {
	s := newService(t, "orders")
	produce(t, s.a, "orders", 0, 40, "first")
	d := start(t, 0, "daemon", "--bootstrap-server", s.b, "--no-salvage", "--events", "--status-listen", "127.0.0.1:0")
	get := served(t, d)
	s.says(exitOK, "create --mirror a-to-b --mirror-config "+s.file, "the daemon runs it")
	s.says(exitOK, "start --mirror a-to-b --topics orders", "mirroring, 2 partitions")
	consume(t, s.b, "orders", 0, 40)
	var shown statuspage.Status
	d.until(t, "copied", func() bool {
		_, text := get("/status")
		shown = statuspage.Status{}
		return json.Unmarshal([]byte(text), &shown) == nil && len(shown.Mirrors) == 1 && shown.Mirrors[0].Status.Records == 40 && shown.Health == "ok"
	})
	if m := shown.Mirrors[0]; m.Name != "a-to-b" || m.SourceID != "a" || m.Status.Partitions != 2 || len(shown.Events) == 0 {
		t.Errorf("%+v", shown)
	}
	if code, text := get("/healthz"); code != 200 || text != "ok\na-to-b: ok, 2 MIRRORING\n" {
		t.Errorf("%d %q", code, text)
	}
	if code, text := get("/"); code != 200 || !strings.Contains(text, "a-to-b: orders created") || !strings.Contains(text, "2 MIRRORING") {
		t.Errorf("%d\n%s", code, text)
	}
	d.stop(t)
	if code, text := get("/"); code != 0 {
		t.Errorf("after the end: %d %s", code, text)
	}
}

// TestRunBoard: a run has a page as well; a topic that is refused is a failure.
func TestRunBoard(t *testing.T) {
	a, b := newCluster(t, "a", kfake.SeedTopics(1, "orders", "audit")), newCluster(t, "b", kfake.SeedTopics(2, "audit"))
	c := start(t, 0, "run", "--source", a, "--destination", b, "--topics", "orders,audit", "--name", "dr", "--status-listen", "127.0.0.1:0")
	get := served(t, c)
	c.until(t, "failure", func() bool {
		code, text := get("/healthz")
		return code == http.StatusServiceUnavailable && text == "failed\ndr: failed, 1 MIRRORING\n"
	})
	if _, text := get("/"); !strings.Contains(text, "<th>audit<td class=\"state\">refused") {
		t.Errorf("no refusal on the page:\n%s", text)
	}
	c.stop(t)
}

// TestBoardFlags: an address that is none, or is taken, is told.
func TestBoardFlags(t *testing.T) {
	taken := newCluster(t, "a")
	for listen, want := range map[string]string{"8090": "is not host:port", ":8090": "has no host"} {
		if code, _, errs := try(t, "daemon", "--bootstrap-server", taken, "--status-listen", listen); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", listen, code, errs)
		}
		if code, _, errs := try(t, "run", "--source", taken, "--destination", taken, "--topics", "x", "--status-listen", listen); code != exitUsage || !strings.Contains(errs, want) {
			t.Errorf("%s: %d %s", listen, code, errs)
		}
	}
	if code, _, errs := try(t, "daemon", "--bootstrap-server", taken, "--status-listen", taken); code != exitFailed || !strings.Contains(errs, "--status-listen: listen tcp") {
		t.Errorf("%d %s", code, errs)
	}
}
