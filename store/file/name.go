package file

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
)

const (
	prefix = "mirror-"
	suffix = ".json"
	unborn = ".tmp" // follows the name of a file that is being written
	// longest is how much of an escaped name stands in a file's name. File systems
	// allow 255 bytes.
	longest = 200
)

// fileName is the name of a mirror's file; see the package comment. It is another one
// for each mirror, also where capitals do not count, and never one of the names that some
// systems keep for themselves.
func fileName(mirror string) string {
	var b strings.Builder
	for i := range len(mirror) {
		switch c := mirror[i]; {
		case 'a' <= c && c <= 'z', '0' <= c && c <= '9', c == '.', c == '_', c == '-':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02x", c)
		}
	}
	name := b.String()
	if len(name) > longest {
		sum := sha256.Sum256([]byte(mirror))
		name = name[:longest] + "~" + hex.EncodeToString(sum[:16])
	}
	return prefix + name + suffix
}

// ours reports whether a file of the folder is a mirror's, or was to become one.
func ours(name string) (stored, leftover bool) {
	base, leftover := strings.CutSuffix(name, unborn)
	if !strings.HasPrefix(base, prefix) || !strings.HasSuffix(base, suffix) {
		return false, false
	}
	return !leftover, leftover
}
