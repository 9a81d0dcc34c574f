//go:build race

package simulation

const ordinary = 500 // schedules
