package kafkatest

// Controllers returns the controller address of every node, running or not.
func (c *core) Controllers() []string {
	addrs := make([]string, 0, len(c.nodes))
	for _, n := range c.nodes {
		addrs = append(addrs, localAddr(n.controllerPort))
	}
	return addrs
}

// Internal returns the address of every node on the listener that brokers use
// among themselves, INTERNAL, running or not.
func (c *core) Internal() []string {
	addrs := make([]string, 0, len(c.nodes))
	for _, n := range c.nodes {
		addrs = append(addrs, localAddr(n.internalPort))
	}
	return addrs
}
