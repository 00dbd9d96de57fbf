"""Whose an error of a socket is: this host's, so that no other address would do better, or that of the one address.

    EMFILE, ENFILE      no descriptor is left                                       this host's
    ENOBUFS, ENOMEM     no memory is left                                           this host's
    EADDRNOTAVAIL       IPv6 is off (sysctl disable_ipv6), no port is left for      the address's
                        this peer, or a source address is not this host's
    EAFNOSUPPORT        the kernel has no IPv6                                      the address's
    ENETUNREACH         no route goes there                                         the address's
    EACCES, EPERM       a firewall of this host lets nothing go there               the address's
    all others          what the peer, or the way to it, answers                    the address's
"""

import errno

NO_DESCRIPTOR = frozenset((errno.EMFILE, errno.ENFILE))
OF_THIS_HOST = NO_DESCRIPTOR | {errno.ENOBUFS, errno.ENOMEM}
