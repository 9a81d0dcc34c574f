package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/clustermirror/mirror"
	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/coordinator"
)

// accessHelp is the part of the help about who may what.
const accessHelp = `Access rules. --acls copies those that one of its rules matches, with all their rights: all
matches every one, fields match those that have them, as in
  --acls 'resource=TOPIC,pattern=PREFIXED,name=orders; principal=User:app,operation=READ'
The fields are resource, pattern, name, principal, host, operation and permission, with the
words of kafka-acls.sh. Rules are only added, unless --acls-delete says otherwise. It takes
DESCRIBE on the source cluster, DESCRIBE and ALTER on the destination cluster.

Guard. --guard keeps all but its principals from writing to mirror topics of a destination
that has an authorizer: whoever a rule allows to write is denied it, topic by topic, until
the topic is stopped. Then exactly what was added is gone, after a crash too; so it needs
--state kafka or file:DIR. This mirror's own principal has to be one of them, as User:name;
super users are never refused. A topic on which a rule lets User:* write is guarded only
with --guard-super-users, one that has no rules only with --guard-open. With --join nobody
can write anyway.`

// accessFlags say which access rules are copied, and who may write to mirror topics.
type accessFlags struct {
	include, exclude []string
	remove           bool
	may              []string
	open, super      bool
}

func (f *accessFlags) register(c *cobra.Command) {
	c.Flags().StringArrayVar(&f.include, "acls", nil, "access rules that are copied, `rule[;...]`; may be repeated")
	c.Flags().StringArrayVar(&f.exclude, "acls-exclude", nil, "access rules that are left alone, `rule[;...]`; wins over --acls")
	c.Flags().BoolVar(&f.remove, "acls-delete", false, "delete access rules that this mirror has created when they are gone at the source")
	c.Flags().StringArrayVar(&f.may, "guard", nil, "keep all but these principals from writing to mirror topics, `User:name[;...]`; this mirror's own\nis one of them; may be repeated")
	c.Flags().BoolVar(&f.open, "guard-open", false, "the destination has allow.everyone.if.no.acl.found: guard topics without rules too, which everyone\nmay do all else with")
	c.Flags().BoolVar(&f.super, "guard-super-users", false, "all of --guard are super users of the destination: deny writing to User:* where a rule allows it to User:*")
}

// apply puts into options what the flags say, and reports all that is wrong with them. lasting
// says that the mirror's state outlives the process.
func (f *accessFlags) apply(o *mirror.Options, lasting bool) error {
	var errs []error
	for _, needs := range []struct {
		flag, other string
		set, has    bool
	}{
		{"acls-exclude", "acls", len(f.exclude) > 0, len(f.include) > 0}, {"acls-delete", "acls", f.remove, len(f.include) > 0},
		{"guard-open", "guard", f.open, len(f.may) > 0}, {"guard-super-users", "guard", f.super, len(f.may) > 0},
	} {
		if needs.set && !needs.has {
			errs = append(errs, fmt.Errorf("--%s: needs --%s", needs.flag, needs.other))
		}
	}
	include, err := acl.ParseRules(strings.Join(f.include, ";"))
	errs = append(errs, placed("--acls", err))
	exclude, err := acl.ParseRules(strings.Join(f.exclude, ";"))
	errs = append(errs, placed("--acls-exclude", err))
	if len(f.include) > 0 {
		if len(include) == 0 {
			errs = append(errs, errors.New("--acls: names no rule; all is every rule"))
		}
		o.ACLs = mirror.ACLs{Sync: true, Include: include, Exclude: exclude, Delete: f.remove}
	}
	if len(f.may) == 0 {
		return errors.Join(errs...)
	}
	o.Guard = mirror.Guard{On: true, SuperUsers: f.super, Open: f.open}
	for p := range strings.SplitSeq(strings.Join(f.may, ";"), ";") {
		if p = strings.TrimSpace(p); p != "" {
			o.Guard.May = append(o.Guard.May, p)
		}
	}
	errs = append(errs, placed("--guard", acl.Guarding{May: o.Guard.May}.Validate()))
	if !lasting {
		errs = append(errs, errors.New("--guard: needs --state kafka or file:DIR: what it has added has to be found again after a crash"))
	}
	o.Store = coordinator.NewMemory() // until that of --state is open
	return errors.Join(errs...)
}
