package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// reference is what stands in a definition in the place of a secret, in the form of Kafka's
// configuration providers: ${file:/path:key} or ${env:NAME}.
var reference = regexp.MustCompile(`\$\{([^{}:]*):([^{}]*)\}`)

func hasReference(value string) bool { return reference.MatchString(value) }

// isReference: the value is one reference and nothing else.
func isReference(value string) bool {
	value = strings.TrimSpace(value)
	return reference.FindString(value) == value && value != ""
}

// checkReferences reports those that nobody could resolve.
func checkReferences(value string) error {
	var errs []error
	for _, m := range reference.FindAllStringSubmatch(value, -1) {
		_, _, err := splitReference(m)
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// splitReference gives the file of a reference, empty for the environment, and the key.
func splitReference(m []string) (file, key string, err error) {
	switch m[1] {
	case "env":
		if m[2] == "" {
			return "", "", fmt.Errorf("%s names no variable", m[0])
		}
		return "", m[2], nil
	case "file":
		file, key, _ = strings.Cut(m[2], ":")
		if !filepath.IsAbs(file) || key == "" {
			return "", "", fmt.Errorf("%s: want ${file:/path:key}", m[0])
		}
		return file, key, nil
	}
	return "", "", fmt.Errorf("%s: %q is not one of file, env", m[0], m[1])
}

// resolver puts what references refer to in their place. folders are those whose files may
// be referred to; any where there are none.
type resolver struct{ folders []string }

// resolve gives a value with all its references replaced. Errors name references, never
// what they refer to.
func (r resolver) resolve(value string) (string, error) {
	var errs []error
	resolved := reference.ReplaceAllStringFunc(value, func(text string) string {
		file, key, err := splitReference(reference.FindStringSubmatch(text))
		var secret string
		if err == nil && file == "" {
			var set bool
			if secret, set = os.LookupEnv(key); !set {
				err = fmt.Errorf("%s: is not set here", text)
			}
		} else if err == nil {
			if secret, err = r.fromFile(file, key); err != nil {
				err = fmt.Errorf("%s: %w", text, err)
			}
		}
		errs = append(errs, err)
		return secret
	})
	return resolved, errors.Join(errs...)
}

func (r resolver) fromFile(file, key string) (string, error) {
	real, err := filepath.EvalSymlinks(file)
	if err != nil {
		return "", withoutPath(err)
	}
	if !r.allows(real) {
		return "", errors.New("is in none of the folders of --secrets")
	}
	text, err := os.ReadFile(real)
	if err != nil {
		return "", withoutPath(err)
	}
	all, err := parseProperties(string(text))
	if err != nil {
		return "", err
	}
	value, found := "", false
	for _, p := range all {
		if p.key == key {
			value, found = p.value, true
		}
	}
	if !found {
		return "", errors.New("there is no such key in the file")
	}
	return value, nil
}

func (r resolver) allows(file string) bool {
	for _, dir := range r.folders {
		if real, err := filepath.EvalSymlinks(dir); err == nil {
			dir = real
		}
		if inside, err := filepath.Rel(dir, file); err == nil && filepath.IsLocal(inside) {
			return true
		}
	}
	return len(r.folders) == 0
}

// withoutPath is an error of a file where its name stands already.
func withoutPath(err error) error {
	var at *os.PathError
	if errors.As(err, &at) {
		return at.Err
	}
	return err
}
