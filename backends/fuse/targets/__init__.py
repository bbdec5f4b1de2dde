"""What is known of each kind of device: `lookup.target_of` gives the target of a device, and nothing else looks at what
kind a device is."""
