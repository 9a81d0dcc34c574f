package kafka

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/clustermirror/mirror/acl"
	"github.com/clustermirror/mirror/cluster"
	"github.com/clustermirror/mirror/internal/wire"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var _ acl.Sink = (*Cluster)(nil)

// word is what Kafka calls a number of the protocol.
type word[N ~int8] []string

// The words begin at UNKNOWN (0) and ANY (1), which no rule has.
var (
	resourceWords   = word[kmsg.ACLResourceType]{"", "", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER"}
	patternWords    = word[kmsg.ACLResourcePatternType]{"", "", "", "LITERAL", "PREFIXED"}
	permissionWords = word[kmsg.ACLPermissionType]{"", "", "DENY", "ALLOW"}
	operationWords  = word[kmsg.ACLOperation]{
		"", "", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION", "DESCRIBE_CONFIGS", "ALTER_CONFIGS",
		"IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
	}
)

// text is the word, or the number where a newer Kafka has one that is not known.
func (w word[N]) text(n N) string {
	if n < 0 || int(n) >= len(w) || w[n] == "" {
		return fmt.Sprintf("UNKNOWN(%d)", int8(n))
	}
	return w[n]
}

func (w word[N]) number(text string) (N, error) {
	if i := slices.Index(w, text); i > 0 && text != "" {
		return N(i), nil
	}
	return 0, fmt.Errorf("%w: %q is not known", errors.ErrUnsupported, text)
}

// ACLs gives all access rules (DescribeAcls, which needs DESCRIBE on the cluster).
func (c *Cluster) ACLs(ctx context.Context) ([]cluster.Binding, error) {
	conn, err := c.client.Any(ctx)
	if err != nil {
		return nil, err
	}
	req := kmsg.NewPtrDescribeACLsRequest()
	req.ResourceType, req.ResourcePatternType = kmsg.ACLResourceTypeAny, kmsg.ACLResourcePatternTypeAny
	req.Operation, req.PermissionType = kmsg.ACLOperationAny, kmsg.ACLPermissionTypeAny
	answer, err := conn.Do(ctx, req)
	if err != nil {
		return nil, err
	}
	resp := answer.(*kmsg.DescribeACLsResponse)
	if err := needing("DESCRIBE on the cluster", saying(resp.ErrorCode, resp.ErrorMessage)); err != nil {
		return nil, err
	}
	var all []cluster.Binding
	for _, r := range resp.Resources {
		for _, a := range r.ACLs {
			all = append(all, cluster.Binding{
				ResourceType: resourceWords.text(r.ResourceType), Name: r.ResourceName, PatternType: patternWords.text(r.ResourcePatternType),
				Principal: a.Principal, Host: a.Host, Operation: operationWords.text(a.Operation), Permission: permissionWords.text(a.PermissionType),
			})
		}
	}
	return all, nil
}

// numbered is a rule in the numbers of the protocol.
type numbered struct {
	resource   kmsg.ACLResourceType
	pattern    kmsg.ACLResourcePatternType
	operation  kmsg.ACLOperation
	permission kmsg.ACLPermissionType
}

func numbers(b cluster.Binding) (n numbered, err error) {
	var errs [4]error
	n.resource, errs[0] = resourceWords.number(b.ResourceType)
	n.pattern, errs[1] = patternWords.number(b.PatternType)
	n.operation, errs[2] = operationWords.number(b.Operation)
	n.permission, errs[3] = permissionWords.number(b.Permission)
	return n, errors.Join(errs[:]...)
}

// toChange is the right that changes of access rules take.
const toChange = "ALTER on the cluster"

// CreateACLs adds access rules (CreateAcls, which needs ALTER on the cluster).
func (c *Cluster) CreateACLs(ctx context.Context, bindings []cluster.Binding) []error {
	return c.changeACLs(ctx, bindings, func(ctx context.Context, conn *wire.Conn, bs []cluster.Binding, ns []numbered, errs []error) error {
		req := kmsg.NewPtrCreateACLsRequest()
		for i, b := range bs {
			one := kmsg.NewCreateACLsRequestCreation()
			one.ResourceType, one.ResourceName, one.ResourcePatternType = ns[i].resource, b.Name, ns[i].pattern
			one.Principal, one.Host, one.Operation, one.PermissionType = b.Principal, b.Host, ns[i].operation, ns[i].permission
			req.Creations = append(req.Creations, one)
		}
		answer, err := conn.Do(ctx, req)
		if err != nil {
			return err
		}
		for i, r := range answer.(*kmsg.CreateACLsResponse).Results {
			if i < len(errs) {
				errs[i] = needing(toChange, saying(r.ErrorCode, r.ErrorMessage))
			}
		}
		return nil
	})
}

// DeleteACLs removes exactly these access rules (DeleteAcls, which needs ALTER on the cluster).
func (c *Cluster) DeleteACLs(ctx context.Context, bindings []cluster.Binding) []error {
	return c.changeACLs(ctx, bindings, func(ctx context.Context, conn *wire.Conn, bs []cluster.Binding, ns []numbered, errs []error) error {
		req := kmsg.NewPtrDeleteACLsRequest()
		for i := range bs {
			one := kmsg.NewDeleteACLsRequestFilter()
			one.ResourceType, one.ResourceName, one.ResourcePatternType = ns[i].resource, &bs[i].Name, ns[i].pattern
			one.Principal, one.Host, one.Operation, one.PermissionType = &bs[i].Principal, &bs[i].Host, ns[i].operation, ns[i].permission
			req.Filters = append(req.Filters, one)
		}
		answer, err := conn.Do(ctx, req)
		if err != nil {
			return err
		}
		for i, r := range answer.(*kmsg.DeleteACLsResponse).Results {
			if i >= len(errs) {
				break
			}
			errs[i] = needing(toChange, saying(r.ErrorCode, r.ErrorMessage))
			for _, m := range r.MatchingACLs {
				errs[i] = errors.Join(errs[i], saying(m.ErrorCode, m.ErrorMessage))
			}
		}
		return nil
	})
}

// changeACLs has rules changed that the protocol has numbers for, by the controller. What is
// done already is no error of it, so it can be asked again.
func (c *Cluster) changeACLs(ctx context.Context, bindings []cluster.Binding,
	change func(context.Context, *wire.Conn, []cluster.Binding, []numbered, []error) error,
) []error {
	errs := make([]error, len(bindings))
	var bs []cluster.Binding
	var ns []numbered
	var at []int
	for i, b := range bindings {
		n, err := numbers(b)
		if errs[i] = err; err == nil {
			bs, ns, at = append(bs, b), append(ns, n), append(at, i)
		}
	}
	if len(bs) == 0 {
		return errs
	}
	ctx, cancel := context.WithTimeout(ctx, 2*c.cfg.RequestTimeout)
	defer cancel()
	answers := make([]error, len(bs))
	for try := range leaderTries {
		if try > 0 && !sleep(ctx, pause(try)) {
			break
		}
		for i := range answers {
			answers[i] = errMissing
		}
		conn, err := c.client.Controller(ctx)
		if err == nil {
			err = change(ctx, conn, bs, ns, answers)
		}
		if err != nil {
			for i := range answers {
				answers[i] = err
			}
		}
		if !errors.Is(answers[0], notController) { // as with CreateTopics
			break
		}
	}
	for k, i := range at {
		errs[i] = answers[k]
	}
	return errs
}
