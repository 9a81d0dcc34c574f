package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// login is the one entry of a sasl.jaas.config.
type login struct {
	module  string
	options map[string]string
}

// parseJAAS reads "module required key="value" ...;". The errors name options,
// never values.
func parseJAAS(text string) (login, error) {
	tokens, err := jaasTokens(text)
	if err != nil {
		return login{}, err
	}
	if len(tokens) < 3 || tokens[len(tokens)-1].kind != ';' {
		return login{}, errors.New(`want: module required username="..." password="...";`)
	}
	l := login{module: tokens[0].text, options: map[string]string{}}
	if flag := strings.ToLower(tokens[1].text); !slices.Contains([]string{"required", "requisite", "sufficient", "optional"}, flag) {
		return login{}, errors.New(`the word after the module must be "required"`)
	}
	for rest := tokens[2 : len(tokens)-1]; len(rest) > 0; rest = rest[3:] {
		if len(rest) < 3 || rest[0].kind != 'w' || rest[1].kind != '=' || (rest[2].kind != 'w' && rest[2].kind != '"') {
			return login{}, errors.New(`options are written key="value", and only one module is allowed`)
		}
		if _, twice := l.options[rest[0].text]; twice {
			return login{}, fmt.Errorf("option %s is given twice", rest[0].text)
		}
		l.options[rest[0].text] = rest[2].text
	}
	return l, nil
}

// credentials are the user name and password of a login with a module that
// knows nothing else.
func (l login) credentials(module string) (username, password string, err error) {
	name := l.module[strings.LastIndexByte(l.module, '.')+1:]
	if name != module {
		return "", "", fmt.Errorf("the mechanism needs %s", module)
	}
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(l.options)) {
		if key != "username" && key != "password" {
			errs = append(errs, fmt.Errorf("option %s is not supported", key))
		}
	}
	for _, key := range []string{"username", "password"} {
		if l.options[key] == "" {
			errs = append(errs, fmt.Errorf("option %s is needed", key))
		}
	}
	return l.options["username"], l.options["password"], errors.Join(errs...)
}

// token is a word ('w'), a quoted word ('"'), or a '=' or ';' of its own.
type token struct {
	kind byte
	text string
}

func jaasTokens(text string) ([]token, error) {
	var out []token
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c <= ' ':
			i++
		case c == '=' || c == ';':
			out = append(out, token{kind: c})
			i++
		case c == '"':
			word, length, ok := quoted(text[i:])
			if !ok {
				return nil, errors.New("a quote is not closed")
			}
			out = append(out, token{'"', word})
			i += length
		default:
			end := i
			for end < len(text) && text[end] > ' ' && !strings.ContainsRune(`=;"`, rune(text[end])) {
				end++
			}
			out = append(out, token{'w', text[i:end]})
			i = end
		}
	}
	return out, nil
}

// quoted reads a quoted word with backslash escapes and says how long it was.
func quoted(text string) (word string, length int, ok bool) {
	var b strings.Builder
	for i := 1; i < len(text); i++ {
		switch c := text[i]; {
		case c == '"':
			return b.String(), i + 1, true
		case c == '\\' && i+1 < len(text):
			i++
			if n := strings.IndexByte("ntrf", text[i]); n >= 0 {
				b.WriteByte("\n\t\r\f"[n])
				continue
			}
			b.WriteByte(text[i])
		default:
			b.WriteByte(c)
		}
	}
	return "", 0, false
}
