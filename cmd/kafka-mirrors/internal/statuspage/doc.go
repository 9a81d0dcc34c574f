// Package statuspage serves how mirrors fare over HTTP: a page for a person, JSON for programs,
// and a health that is the worst partition's. It only shows.
package statuspage
