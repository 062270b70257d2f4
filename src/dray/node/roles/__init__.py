"""What a process of Dray can be: each role stands on `dray.node.plane`."""
