"""Shared by the runners of virtual machines: QEMU's control socket, disks, accelerators, displays, input, the guest channel, checkpoints."""
