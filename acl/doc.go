// Package acl keeps access rules of one cluster at another: those that a filter takes in,
// as they are. Rules are added; one that a mirror has created is deleted when the source no
// longer has it and that is asked for, and no other rule ever is.
package acl
