package mirror

import (
	"context"
	"maps"

	"github.com/clustermirror/mirror/coordinator"
)

// Check reports everything that is wrong with a definition, as Create would. It asks
// nobody anything.
func (c *Controller) Check(def coordinator.Definition) error {
	if err := c.check(def); err != nil {
		return fault("check", def.Name, err)
	}
	return nil
}

// Alter changes the definition of a mirror and gives it as it is stored then. change gets
// a copy to be changed, again when somebody else has written in between; what it does to the name, the revision
// and the clusters' ids is not looked at. Every bad field is reported, and nothing stored
// then. A mirror whose settings have changed is opened anew where it runs and goes on where it was; one
// whose source became another cluster fails (ErrClusterReplaced).
func (c *Controller) Alter(ctx context.Context, mirror string, change func(*coordinator.Definition) error) (coordinator.Definition, error) {
	def, err := c.redefine(ctx, mirror, func(d *coordinator.Definition) error {
		kept := *d
		d.Source, d.Destination, d.Config = maps.Clone(d.Source), maps.Clone(d.Destination), maps.Clone(d.Config)
		if err := change(d); err != nil {
			return err
		}
		d.Name, d.Revision, d.SourceID, d.DestinationID = kept.Name, kept.Revision, kept.SourceID, kept.DestinationID
		return c.check(*d)
	})
	if err != nil {
		return coordinator.Definition{}, fault("alter", mirror, err)
	}
	return def, nil
}
