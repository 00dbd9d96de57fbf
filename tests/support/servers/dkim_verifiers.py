"""What other programs say of signatures and seals: Mail::DKIM (Perl) and libopendkim, with the keys of a DkimZone."""

import re
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from support.tools import need, need_file

_OPENDKIM = re.compile(r"\bdkim=(\w+)")
PERL_MODULE = "/usr/share/perl5/Mail/DKIM.pm"
# For each file a line: the results of its signatures, then that of its chain of ARC.
_PERL = """
use strict; use warnings;
use Mail::DKIM::Verifier; use Mail::DKIM::ARC::Verifier;
my %records;
open(my $list, '<', shift) or die;
while (<$list>) { chomp; my ($name, $text) = split / /, $_, 2; $records{lc $name} = $text; }
package Answer; sub new { bless {text => $_[1]}, $_[0] } sub type { 'TXT' }
sub txtdata { $_[0]{text} } sub char_str_list { $_[0]{text} }
package main;
no warnings 'redefine';
*Mail::DKIM::DNS::query = sub { my $text = $records{lc $_[0]}; $@ = ''; return $text ? Answer->new($text) : () };
$| = 1;
for my $path (@ARGV) {
    open(my $file, '<:raw', $path) or die;
    my $message = do { local $/; <$file> };
    my $dkim = Mail::DKIM::Verifier->new; $dkim->PRINT($message); $dkim->CLOSE;
    my $arc = Mail::DKIM::ARC::Verifier->new; $arc->PRINT($message); $arc->CLOSE;
    print join(' ', (map { $_->result } $dkim->signatures), 'arc=' . $arc->result), "\\n";
}
"""


def judge_by_perl(files: Sequence[Path], records: Mapping[bytes, bytes], directory: Path) -> list[str]:
    """Return for each message on the wire, in a file, what Mail::DKIM says: `pass pass arc=none`."""
    need_file(PERL_MODULE)
    script, known = directory / "verify.pl", directory / "records"
    script.write_text(_PERL)
    known.write_bytes(b"".join(b"%s %s\n" % (name.rstrip(b"."), text) for name, text in records.items()))
    words = [need("perl"), str(script), str(known), *map(str, files)]
    done = subprocess.run(words, capture_output=True, check=True, timeout=300)
    lines = done.stdout.decode().splitlines()
    assert len(lines) == len(files), done.stderr
    return lines


def judge_by_opendkim(files: Sequence[Path], records: Mapping[bytes, bytes], directory: Path) -> list[str]:
    """Return for each message what libopendkim says of its signatures: `pass pass`."""
    known, settings = directory / "keys", directory / "opendkim.conf"
    known.write_bytes(b"".join(b"%s %s\n" % (name.rstrip(b"."), text) for name, text in records.items()))
    settings.write_text(f"Mode v\nTestPublicKeys {known}\nSyslog no\n")
    words = [need("opendkim"), "-x", str(settings), "-vvv", "-t"]
    # Of several files it leaves out those behind one that it cannot read.
    said = [subprocess.run([*words, str(path)], capture_output=True, check=False, timeout=60).stdout for path in files]
    return [" ".join(_OPENDKIM.findall(text.decode("utf-8", "replace"))) for text in said]
