package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/clustermirror/mirror/transport/broker"
)

func TestJoinFlags(t *testing.T) {
	f := joinFlags{ids: "900-902", state: "folder", listeners: []string{"INTERNAL=PLAINTEXT://mirror1:9991", "SASL_PLAINTEXT://mirror1:9992"}, controllers: []string{"c:1"}}
	cfg, err := f.config()
	want := []broker.Listener{{Name: "INTERNAL", Host: "mirror1", Port: 9991}, {Name: "SASL_PLAINTEXT", Host: "mirror1", Port: 9992, Protocol: 2}}
	if err != nil || cfg.IDs != (broker.IDs{First: 900, Last: 902}) || !slices.Equal(cfg.Listeners, want) || !slices.Equal(cfg.Controllers, []string{"c:1"}) {
		t.Errorf("%+v, %v", cfg, err)
	}
	if one, err := (&joinFlags{ids: "7", state: "x", listeners: f.listeners}).config(); err != nil || one.IDs != (broker.IDs{First: 7, Last: 7}) {
		t.Errorf("one id: %+v, %v", one, err)
	}
	if _, err := (&joinFlags{}).config(); err != nil {
		t.Errorf("without --join: %v", err)
	}
	for want, f := range map[string]joinFlags{
		"--join-controllers and the like":            {listeners: []string{"PLAINTEXT://a:1"}},
		`"x" is no range`:                            {ids: "x", state: "x", listeners: f.listeners},
		`"9-7" is no range`:                          {ids: "9-7", state: "x", listeners: f.listeners},
		"that between brokers":                       {ids: "1", state: "x"},
		"--join-cert: is needed for listeners [B C]": {ids: "1", state: "x", listeners: []string{"A=PLAINTEXT://a:1", "B=SSL://a:2", "C=SASL_SSL://a:3"}},
		"need a --join-listener with SSL":            {ids: "1", state: "x", listeners: f.listeners, cert: "x"},
		"and the first --join-listener is none":      {ids: "1", state: "x", listeners: []string{"A=SASL_SSL://a:1", "B=SSL://a:2"}, cert: "x", clientCA: "x"},
		"no PEM certificate":                         {ids: "1", state: "x", listeners: []string{"B=SSL://a:2"}, cert: "absent.pem"},
		"--join-controllers-config absent":           {ids: "1", state: "x", listeners: f.listeners, controllersConfig: "absent"},
		"and the like need --join":                   {untested: true},
		`"shut" is neither strict nor open`:          {ids: "1", state: "x", listeners: f.listeners, available: "shut"},
		"is not one of PLAIN":                        {ids: "1", state: "x", listeners: []string{"A=http://a:1"}},
		"port is not a number":                       {ids: "1", state: "x", listeners: []string{"A=PLAINTEXT://a:0"}},
		"is not host:port":                           {ids: "1", state: "x", listeners: []string{"A=PLAINTEXT://a"}},
		"is not NAME=":                               {ids: "1", state: "x", listeners: []string{"a:1"}},
	} {
		if _, err := f.config(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", f, err, want)
		}
	}
}
