package main

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/coordinator"
	"github.com/clustermirror/mirror/transport/kafka"
)

// definitionHelp is the part of the help about what a mirror is made of.
func definitionHelp() string {
	var b strings.Builder
	b.WriteString(`The file of a mirror is a .properties file. How to reach the source stands there as in
the file of a Java client, and may be that file: bootstrap.servers, security.protocol,
sasl.*, ssl.*, client.id, request.timeout.ms, each with "source." before it or without.
Files that it names are those of the daemon's machine. Secrets do not stand in it but
references, ` + "${file:/path:key}" + ` or ` + "${env:NAME}" + `, which the daemon resolves when it opens the
mirror: for the password in sasl.jaas.config (or all of it), and in ssl.* keys. Besides,
how the mirror works:
`)
	for _, k := range mirrorKeys() {
		fmt.Fprintf(&b, "  %-18s %s (%s", k.name, k.meaning, k.values)
		if k.def != "" {
			b.WriteString("; default: " + k.def)
		}
		b.WriteString(")\n")
	}
	b.WriteString(`Any other key is refused. An option that a message names is a key here: Truncation is
truncation, DiscardLocalWrites local.writes=discard, UncleanRecovery unclean.recovery.`)
	return b.String()
}

// mirrorKey is a key of a mirror's file that is no connection's.
type mirrorKey struct{ name, values, def, meaning string }

// mirrorKeys are all of them, by name.
func mirrorKeys() []mirrorKey {
	var all []mirrorKey
	for _, k := range mirror.ConfigKeys() {
		all = append(all, mirrorKey{k.Name, k.Values, k.Default, k.Meaning})
	}
	for _, k := range destinationKeys {
		all = append(all, k.mirrorKey)
	}
	slices.SortFunc(all, func(a, b mirrorKey) int { return cmp.Compare(a.name, b.name) })
	return all
}

// destinationKey is one of how the destination is written to.
type destinationKey struct {
	mirrorKey
	set func(cfg *kafka.Config, value string) error
}

var destinationKeys = []destinationKey{
	{mirrorKey{"gap.fill", "auto, markers, phantoms, fail", "auto", "what takes the place of offsets without records"},
		func(cfg *kafka.Config, value string) (err error) {
			cfg.GapFill, err = kafka.ParseGapFill(value)
			return err
		}},
	{mirrorKey{"start.fill.max", "a number of offsets", "100000000", "how many offsets are filled at most so that a log starts where the source's does"},
		func(cfg *kafka.Config, value string) error {
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil || n <= 0 {
				return fmt.Errorf("%q is no number above 0", value)
			}
			cfg.MaxStartFill = n
			return nil
		}},
	{mirrorKey{"truncation", "refuse, rebuild", "refuse", "what is done when records at the destination have to go: nothing, or the topic is deleted and copied again"},
		func(cfg *kafka.Config, value string) error {
			switch value {
			case "refuse":
				cfg.Truncation = kafka.Refuse
			case "rebuild":
				cfg.Truncation = kafka.Rebuild
			default:
				return fmt.Errorf("%q is not one of refuse, rebuild", value)
			}
			return nil
		}},
}

// setDestination puts what a definition says of the destination into its configuration.
func setDestination(cfg *kafka.Config, values map[string]string) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(values)) {
		i := slices.IndexFunc(destinationKeys, func(k destinationKey) bool { return k.name == name })
		if i < 0 {
			errs = append(errs, fmt.Errorf("%s: unknown key", name))
			continue
		}
		errs = append(errs, placed(name, destinationKeys[i].set(cfg, strings.TrimSpace(values[name]))))
	}
	return errors.Join(errs...)
}

// sourceKeys are those of a connection.
func sourceKeys() []string {
	return append([]string{"bootstrap.servers", "client.id", "request.timeout.ms", "security.protocol", "sasl.mechanism", "sasl.jaas.config"}, tlsKeys()...)
}

// readMirror reads the file of a mirror.
func readMirror(file string) (coordinator.Definition, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return coordinator.Definition{}, fmt.Errorf("%s: %w", file, withoutPath(err))
	}
	all, err := parseProperties(string(text))
	def, sortErr := sortMirror(all)
	return def, placed(file, errors.Join(err, sortErr))
}

// sortMirror takes properties for those of a mirror, and says which are none.
func sortMirror(all []property) (coordinator.Definition, error) {
	def := coordinator.Definition{Source: map[string]string{}, Destination: map[string]string{}, Config: map[string]string{}}
	var errs []error
	given := map[string]string{} // how a key of the source was written
	for _, p := range all {
		name := strings.TrimPrefix(p.key, "source.")
		switch into := keptIn(&def, p.key); {
		case into == nil:
			errs = append(errs, fmt.Errorf("%sunknown key", p.where()))
		case given[name] != "" && given[name] != p.key:
			errs = append(errs, fmt.Errorf("%sstands there as %s too", p.where(), given[name]))
		default:
			given[name] = p.key
			into[name] = p.value
		}
	}
	return def, errors.Join(errs...)
}

// keptIn is the part of a definition where a key belongs; nil when it is unknown.
func keptIn(def *coordinator.Definition, key string) map[string]string {
	switch {
	case slices.Contains(sourceKeys(), strings.TrimPrefix(key, "source.")):
		return def.Source
	case slices.ContainsFunc(destinationKeys, func(k destinationKey) bool { return k.name == key }):
		return def.Destination
	case slices.ContainsFunc(mirror.ConfigKeys(), func(k mirror.ConfigKey) bool { return k.Name == key }):
		return def.Config
	}
	return nil
}

// where begins a sentence about a property.
func (p property) where() string {
	if p.line > 0 {
		return fmt.Sprintf("line %d: %s: ", p.line, p.key)
	}
	return p.key + ": "
}

// checkMirror reports what is wrong with the parts of a definition that are this program's.
// The daemon may run on another machine: files and variables are not looked at.
func checkMirror(def coordinator.Definition) error {
	var all []property
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(def.Source)) {
		all = append(all, property{key: key, value: def.Source[key]})
		if hasReference(def.Source[key]) && !strings.HasPrefix(key, "ssl.") && key != "sasl.jaas.config" {
			errs = append(errs, fmt.Errorf("%s: references are for secrets", key))
			continue
		}
		errs = append(errs, placed(key, checkReferences(def.Source[key])))
	}
	s := newSettings(all)
	s.elsewhere = true
	s.refusePlain()
	cfg, err := s.build()
	errs = append(errs, err)
	if len(cfg.Bootstrap) == 0 {
		errs = append(errs, errors.New("bootstrap.servers: is needed"))
	} else {
		errs = append(errs, placed("bootstrap.servers", cfg.Validate()))
	}
	var destination kafka.Config
	errs = append(errs, setDestination(&destination, def.Destination))
	for _, needs := range []struct{ key, not string }{{"local.writes", "refuse"}, {"scratch", "refuse"}, {"unclean.recovery", ""}} {
		if value := strings.TrimSpace(def.Config[needs.key]); value != "" && value != needs.not && destination.Truncation != kafka.Rebuild {
			errs = append(errs, fmt.Errorf("%s: needs truncation=rebuild", needs.key))
		}
	}
	return errors.Join(errs...)
}

// refusePlain refuses secrets that stand there as they are.
func (s *settings) refusePlain() {
	const advice = "everybody who reads the state topic would read it: write a reference, ${file:/path:key} or ${env:NAME}"
	if jaas := s.of["sasl.jaas.config"].value; jaas != "" && !isReference(jaas) {
		if l, err := parseJAAS(jaas); err == nil && l.options["password"] != "" && !isReference(l.options["password"]) {
			s.refuse("sasl.jaas.config", "the password stands there as it is, and "+advice)
		}
	}
	if key := s.of["ssl.keystore.key"].value; key != "" && !isReference(key) {
		s.refuse("ssl.keystore.key", "the private key stands there as it is, and "+advice)
	}
}

// sourceConfig is the way to a mirror's source, with all secrets.
func (r resolver) sourceConfig(def coordinator.Definition) (kafka.Config, error) {
	var all []property
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(def.Source)) {
		value, err := r.resolve(def.Source[key])
		errs = append(errs, placed(key, err))
		all = append(all, property{key: key, value: value})
	}
	if err := errors.Join(errs...); err != nil {
		return kafka.Config{}, err
	}
	cfg, err := newSettings(all).build()
	if err == nil {
		err = cfg.Validate()
	}
	return cfg, err
}
