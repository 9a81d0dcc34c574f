// Package lint holds the rules of this repository that a compiler does not
// know, as tests: which package may import which, how long a file and a function
// may be, and what must not stand in them.
package lint
