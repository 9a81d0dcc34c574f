package main

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// property is one entry of a file, at the line where it begins.
type property struct {
	key, value string
	line       int
}

// parseProperties reads the format of java.util.Properties: comments with # or !,
// a key that ends at =, : or white space, backslash escapes, lines that go on
// after a backslash. Unlike Java it refuses bytes outside ASCII: Java reads them
// as Latin-1 and most editors write UTF-8, so that a password would differ
// without a word. Escapes (\u00e9) mean the same everywhere.
//
// The errors name lines, never what stands in them: that may be a secret.
func parseProperties(text string) ([]property, error) {
	var (
		all  []property
		errs []error
	)
	for _, l := range logicalLines(text) {
		key, value, err := l.entry()
		if err != nil {
			errs = append(errs, fmt.Errorf("line %d: %w", l.number, err))
			continue
		}
		all = append(all, property{key, value, l.number})
	}
	return all, errors.Join(errs...)
}

// logicalLine is an entry with its escapes, continued lines put together.
type logicalLine struct {
	text   string
	number int
}

func logicalLines(text string) []logicalLine {
	natural := strings.Split(strings.NewReplacer("\r\n", "\n", "\r", "\n").Replace(text), "\n")
	var out []logicalLine
	for i := 0; i < len(natural); i++ {
		line := blankless(natural[i])
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		l := logicalLine{number: i + 1}
		for continued(line) {
			l.text += line[:len(line)-1]
			line = ""
			if i+1 < len(natural) {
				i++
				line = blankless(natural[i])
			}
		}
		l.text += line
		if l.text != "" {
			out = append(out, l)
		}
	}
	return out
}

// continued: an odd number of backslashes ends the line.
func continued(line string) bool {
	return (len(line)-len(strings.TrimRight(line, `\`)))%2 == 1
}

const blanks = " \t\f"

func blankless(s string) string { return strings.TrimLeft(s, blanks) }

// entry splits a line at the first separator that is not escaped.
func (l logicalLine) entry() (key, value string, err error) {
	end := 0
	for end < len(l.text) && !strings.ContainsRune("=:"+blanks, rune(l.text[end])) {
		if l.text[end] == '\\' {
			end++
		}
		end++
	}
	end = min(end, len(l.text))
	rest := blankless(l.text[end:])
	if rest != "" && (rest[0] == '=' || rest[0] == ':') {
		rest = blankless(rest[1:])
	}
	if key, err = unescape(l.text[:end]); err != nil {
		return "", "", err
	}
	value, err = unescape(rest)
	return key, value, err
}

// unescape resolves backslashes. Unicode escapes are UTF-16, as in Java.
func unescape(s string) (string, error) {
	var units []uint16
	for i := 0; i < len(s); i++ {
		c := s[i]
		if c >= utf8.RuneSelf {
			return "", errors.New(`holds a character outside ASCII; write it as \uXXXX`)
		}
		if c != '\\' || i+1 == len(s) {
			units = append(units, uint16(c))
			continue
		}
		i++
		switch c = s[i]; c {
		case 'n':
			c = '\n'
		case 't':
			c = '\t'
		case 'r':
			c = '\r'
		case 'f':
			c = '\f'
		case 'u':
			unit, err := strconv.ParseUint(s[i+1:min(i+5, len(s))], 16, 16)
			if err != nil || i+5 > len(s) {
				return "", errors.New(`\u needs four hexadecimal digits`)
			}
			units = append(units, uint16(unit))
			i += 4
			continue
		}
		if c >= utf8.RuneSelf {
			return "", errors.New(`holds a character outside ASCII; write it as \uXXXX`)
		}
		units = append(units, uint16(c))
	}
	runes := utf16.Decode(units)
	for i, r := range runes {
		if r == utf8.RuneError && !slices.Contains(units, utf8.RuneError) {
			return "", fmt.Errorf("half of a surrogate pair at character %d", i+1)
		}
	}
	return string(runes), nil
}
