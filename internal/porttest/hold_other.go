// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package porttest

import "net"

// Hold returns a loopback address that is free now. Others may take it.
func Hold() (address string, release func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	return l.Addr().String(), func() {}, l.Close()
}
