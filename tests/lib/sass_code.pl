# For sass.pl and sass_time.pl: what `nvdisasm -c` prints, read from standard
# input. Returns the names of kernels in their order, after a hash that has the
# list of each kernel: ['code', TEXT] is an instruction, ['label', NAME] the
# place of a label. kernel_of() takes such a name apart: function, head size, type
# of elements (16 bits, or floats as TF32), dropout; without a function it is none
# of ours.
use strict;
use warnings;

sub read_code {
    my (%code, @order, $kernel);

    while (<STDIN>) {
        if (/^\.text\.(\S+):/) {
            $kernel = $1;
            push @order, $kernel;
        } elsif (defined $kernel && /^\s*(\.L_x_\d+):/) {
            push @{$code{$kernel}}, ['label', $1];
        } elsif (defined $kernel && m{/\*[0-9a-f]{4,5}\*/\s+(.*?)\s*;}) {
            push @{$code{$kernel}}, ['code', $1];
        }
    }
    return (\%code, @order);
}

sub kernel_of {
    my ($function, $drop, $d, $float) = $_[0] =~
        /^_Z\d+([a-z_]+?)I(?:Lb([01])E)?(?:Li(\d+)E)?(fE)?/;

    return ($function, $d // '-', $float ? 'tf32' : '16', $drop ? 'drop' : '-');
}

1;
