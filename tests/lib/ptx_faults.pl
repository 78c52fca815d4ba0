#!/usr/bin/perl
# usage: ptx_faults.pl                     the table: name, file, section of
#                                          test_cuda, what the message says
#        ptx_faults.pl NAME FROM TO        FROM with that fault
#
# Faults that the source of a kernel could have, put into its PTX: each is to be
# found by kernels/emu/ptx. Those whose message is "error" compute something else
# and are found by comparison with the CPU; those without may be found either way.
use strict;
use warnings;

my $wgmma = qr/wgmma\.mma_async\S+ \{[^}]*\}/;

# An edit of one text, $_, that returns the number of places it has changed.
my @faults = (
    ['no-wgmma-fence', 'flash_fwd_sm90a', 'ptx-hopper',
        'after the last wgmma.fence',
        sub { s/wgmma\.fence\.sync\.aligned;//g }],
    ['wait-too-early', 'flash_fwd_sm90a', 'ptx-hopper',
        'that a product under way writes',
        sub { s/wgmma\.wait_group\.sync\.aligned 0;/wgmma.wait_group.sync.aligned 1;/g }],
    ['no-commit', 'flash_bwd_sm90a', 'ptx-hopper',
        'that a product under way',
        sub { s/wgmma\.commit_group\.sync\.aligned;//g }],
    ['swapped-operands', 'flash_fwd_sm90a', 'ptx-hopper', '',
        sub { s/($wgmma), (%rd\d+), (%rd\d+), p/$1, $3, $2, p/g }],
    ['sums-not-cleared', 'flash_fwd_sm90a', 'ptx-hopper',
        'register 0 of an operand is not known',
        sub { s/setp\.ne\.b32 p, %r\d+, 0;/setp.eq.b32 p, 0, 0;/g }],
    # 64 columns to the next: only heads of 128 have such.
    ['wrong-lbo', 'flash_fwd_sm90a', 'ptx-hopper', 'error',
        sub { s/\b4611686293372403712\b/4611686293338849280/g }],
    # 8 rows to the next
    ['wrong-sbo', 'flash_fwd_sm90a', 'ptx-hopper', 'error',
        sub { s/\b4611686293305360384\b/4611686155866406912/g }],
    ['wrong-swizzle', 'flash_fwd_sm90a', 'ptx-hopper', 'error',
        sub { s/\b4611686293305360384\b/9223372311732748288/g }],
    ['not-transposed', 'flash_fwd_sm90a', 'ptx-hopper', '',
        sub { s/p, 1, 1, 1;/p, 1, 1, 0;/g }],
    ['no-proxy-fence', 'flash_bwd_sm90a', 'ptx-hopper',
        'without fence.proxy.async',
        sub { s/fence\.proxy\.async\.shared::cta;//g }],
    # One lane gives places back, before which nothing orders what the others read
    # there: wrong on a GPU alone, as lanes here run in lockstep.
    ['no-warp-barrier', 'flash_bwd_sm90a', 'ptx-hopper', 'read it at PTX line',
        sub { s/bar\.warp\.sync\s+-1;//g }],
    # dS of one warpgroup, read by the other
    ['no-exchange', 'flash_bwd_sm90a', 'ptx-hopper', '',
        sub { s/bar\.sync\s+%r\d+, %r\d+;//g }],
    # The next dS before all warps have waited for the products that read this one
    ['no-wait-for-products', 'flash_bwd_sm90a', 'ptx-hopper',
        'which a product under way reads',
        sub { s/mbarrier\.try_wait\.parity\S+\ p,\ \[%r\d+\],\ %r\d+;
                (?=(?:(?!try_wait).){0,5000}?st\.shared\.u32)
               /setp.eq.b32 p, 0, 0;/gsx }],
    ['sums-misplaced', 'flash_bwd_sm90a', 'ptx-hopper', '',
        sub { s/(cp\.reduce\.async\.bulk\S+ \[%rd\d+)\]/$1+16]/g }],
    # The next dQ overwrites what the copy engine has not read.
    ['no-wait-for-reads', 'flash_bwd_sm90a', 'ptx-hopper',
        'which a copy under way reads',
        sub { s/cp\.async\.bulk\.wait_group\.read 0;//g }],
    ['no-wait-for-sums', 'flash_bwd_sm90a', 'ptx-hopper',
        'bulk copies are under way',
        sub { s/cp\.async\.bulk\.wait_group 0;//g }],
    ['bytes-not-expected', 'flash_fwd_sm90a', 'ptx-hopper',
        'which a copy under way writes',
        sub { s/arrive\.expect_tx(\.shared::cta\.b64 _, \[%r\d+\]), %r\d+;/arrive$1;/g }],
    ['wrong-parity', 'flash_fwd_sm90a', 'ptx-hopper', '',
        sub { s/(try_wait\.parity\S+ p, \[%r\d+\]), %r\d+;/$1, 1;/g }],
    ['no-turn', 'flash_fwd_sm90a', 'ptx-hopper', 'wait for ever',
        sub { s/bar\.arrive\s+%r\d+, %r\d+;//g }],
    ['too-many-registers', 'flash_fwd_sm90a', 'ptx-hopper', 'wait for ever',
        sub { s/(setmaxnreg\.inc\S+) 160;/$1 168;/g }],
    ['wrong-coordinates', 'flash_fwd_sm90a', 'ptx-hopper', 'error',
        sub { s/(tensor\.4d\S+ \[%r\d+\], \[%rd\d+, \{%r\d+), (%r\d+), (%r\d+)/$1, $3, $2/g }],
    ['no-copy-wait', 'flash_fwd', 'ptx-attention',
        'which a copy under way writes',
        sub { s/cp\.async\.wait_group\s+\d+;//g }],
    ['no-transposition', 'flash_fwd', 'ptx-attention', 'error',
        sub { s/x4\.trans\./x4./g }],
    ['not-rounded', 'flash_fwd', 'ptx-attention', 'mma of TF32 has a factor',
        sub { s/cvt\.rna\.tf32\.f32/mov.b32/g }],
    ['swapped-fragments', 'flash_bwd', 'ptx-attention', 'error',
        sub { s/(mma\.sync\S+ \{[^}]*\}, \{)(%r\d+),(%r\d+)/$1$3,$2/g }],
    ['no-barrier', 'norm', 'ptx-rows', 'which nothing has written',
        sub { s/bar\.sync\s+0;//g }],
    ['part-of-a-warp', 'norm', 'ptx-rows', 'of lanes 7fffffff is run by lanes',
        sub { s/(shfl\.sync\.bfly[^;]*), %r\d+;/$1, 2147483647;/g }],
    ['misaligned', 'cast', 'ptx-rows', 'which is no multiple',
        sub { s/(st\.global\.v4\.f32\s+\[%rd\d+)\]/$1+4]/g }],
    ['past-the-end', 'sum', 'ptx-rows', 'lie in no allocation',
        sub { s/(ld\.global\.f32\s+%f\d+, \[%rd\d+)\]/$1+1048576]/g }],
    ['not-initialised', 'cast', 'ptx-rows', 'have not written',
        sub { s/mov\.u32\s+%r\d+, %tid\.x;//g }],
);

if (@ARGV == 0) {
    print join("\t", @$_[0 .. 3]), "\n" for @faults;
    exit 0;
}
my ($name, $from, $to) = @ARGV;
my ($fault) = grep { $_->[0] eq $name } @faults or die "no fault $name\n";
open my $in, '<', $from or die "$from: $!\n";
local $/;
$_ = <$in>;
$fault->[4]->() or die "$from has no place for $name\n";
open my $out, '>', $to or die "$to: $!\n";
print $out $_;
close $out or die "$to: $!\n";
