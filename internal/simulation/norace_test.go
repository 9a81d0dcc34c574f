//go:build !race

package simulation

const ordinary = 20_000 // schedules
