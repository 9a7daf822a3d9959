// SPDX-License-Identifier: Apache-2.0

// Package porttest is for tests in which a broker listens at an address that was named
// before, or that it had already. Nothing that is shipped imports it.
package porttest

import (
	"errors"
	"fmt"
	"syscall"
)

// Hold returns a loopback address at which whoever asks for it by number can listen,
// again and again, until release is called. Nobody else gets its port meanwhile, neither
// to listen at nor for the near end of a connection: not even who connects to it while
// nobody listens, and would be connected to himself.
//
// A socket that is bound and listens at nothing does that: the system passes over its
// port where it chooses one, and lets a listener have it where both say SO_REUSEADDR,
// as listeners of Go do.
func Hold() (address string, release func(), err error) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return "", nil, err
	}
	err = errors.Join(syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_REUSEADDR, 1),
		syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	if err != nil {
		return "", nil, errors.Join(err, syscall.Close(fd))
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		return "", nil, errors.Join(err, syscall.Close(fd))
	}
	bound, _ := name.(*syscall.SockaddrInet4)
	return fmt.Sprintf("127.0.0.1:%d", bound.Port), func() { _ = syscall.Close(fd) }, nil
}
