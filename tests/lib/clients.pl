# Many clients of gpt-generate --serve at once, good ones and bad ones.
#
#     perl clients.pl PORT CLIENTS SECONDS SEED
#
# Each client chooses what it does: requests whose answers are known from the
# beginning, when the server had nothing else to do, streams, chats, requests
# that are malformed, too long, slow, or given up half-way. Every answer to a
# valid request must be the known one, or 429. Prints counts by kind; the exit
# status is 1 when an answer was wrong.
use strict;
use warnings;
use IO::Select;
use IO::Socket::INET;
use Errno;
use Time::HiRes qw(time);

my ($port, $clients, $seconds, $seed) = @ARGV;
srand($seed);
$SIG{PIPE} = 'IGNORE';

sub request {
    my ($path, $body, $more) = @_;
    return "POST $path HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
        . "Content-Type: application/json\r\n" . ($more // '')
        . 'Content-Length: ' . length($body) . "\r\n\r\n$body";
}

sub connect_to {
    return IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $port,
                                 Proto => 'tcp', Blocking => 1);
}

# The text of an answer, whole or streamed; undef when it has none.
sub text_of {
    my ($answer) = @_;
    my ($head, $body) = split /\r\n\r\n/, $answer, 2;
    return undef unless defined $body;
    if ($head =~ /^Transfer-Encoding: *chunked/mi) {
        my $whole = '';
        while ($body =~ s/^([0-9a-fA-F]+)\r\n//) {
            my $n = hex $1;
            last if $n == 0 || length($body) < $n;
            $whole .= substr $body, 0, $n;
            $body = substr $body, $n + 2;
        }
        return undef unless $whole =~ /\ndata: \[DONE\]\n\n\z/;
        $body = $whole;
    }
    my $string = qr/"((?:[^"\\]|\\.)*)"/;
    my @pieces = $body =~ /"(?:text|content)":$string/g;
    return join '', @pieces;
}

sub ask { # one request alone
    my ($bytes) = @_;
    my $s = connect_to() or die "no server at $port\n";
    print $s $bytes;
    local $/;
    return scalar <$s>;
}

# ---- requests with known answers ----

my @good;
for my $i (0 .. 11) {
    my $prompt = join '', map { chr(97 + ($i * 7 + $_ * $i) % 26) } 1 .. 1 + $i;
    my $tokens = 1 + $i * 2 % 14;
    my $how = $i % 2 ? '"temperature":0' : "\"temperature\":1.5,\"seed\":$i";
    for my $stream (0, 1) {
        my $flag = $stream ? ',"stream":true' : '';
        push @good, {
            kind => $stream ? 'stream' : 'text',
            bytes => request('/v1/completions',
                             "{\"prompt\":\"$prompt\",\"max_tokens\":$tokens,"
                             . "$how,\"ignore_eos\":true$flag}")};
        push @good, {
            kind => $stream ? 'chat stream' : 'chat',
            bytes => request('/v1/chat/completions',
                             "{\"messages\":[{\"role\":\"user\",\"content\":"
                             . "\"$prompt\"}],\"max_tokens\":$tokens,$how,"
                             . "\"ignore_eos\":true$flag}")};
    }
}
for my $g (@good) {
    $g->{text} = text_of(ask($g->{bytes}));
    die "no answer to begin with: $g->{bytes}\n"
        unless defined $g->{text} && length $g->{text};
}

# ---- the others ----

my $long = request('/v1/completions', '{"prompt":"' . 'a' x 70000 . '"}');
my $work = request('/v1/completions', '{"prompt":"a","n":8,"max_tokens":12,'
                   . '"ignore_eos":true,"stream":true}');
my @bad = (
    {kind => 'malformed JSON', want => '400',
     bytes => request('/v1/completions', '{"prompt": "a')},
    {kind => 'wrong field', want => '400',
     bytes => request('/v1/chat/completions', '{"messages":[],"tools":[1]}')},
    {kind => 'no UTF-8', want => '400',
     bytes => request('/v1/completions', "{\"prompt\": \"\xff\xfe\"}")},
    {kind => 'malformed HTTP', want => '', bytes => "\0\1\2 what\r\n\r\n"},
    {kind => 'wrong length', want => '',
     bytes => "POST /v1/completions HTTP/1.1\r\nContent-Length: -5\r\n\r\n"},
    {kind => 'two lengths', want => '400',
     bytes => request('/v1/completions', '{"prompt": "a"}',
                      "Transfer-Encoding: chunked\r\n")},
    {kind => 'no such path', want => '404', bytes => request('/v9', '{}')},
    {kind => 'oversize', want => '413', bytes => $long},
    {kind => 'slow', slow => 1, bytes => $good[0]{bytes}},
    {kind => 'given up early', cut => 0.02, bytes => $work},
    {kind => 'given up late', cut => 0.5, bytes => $work},
    {kind => 'half a request', cut => 0.3,
     bytes => substr($good[3]{bytes}, 0, 80)},
    {kind => 'reads nothing', cut => 1, deaf => 1, bytes => $work},
);

# ---- the clients ----

my (%count, %refused, $wrong, %by, %seen);
$wrong = 0;
my $select = IO::Select->new;

sub begin {
    my $what = rand() < 0.7 ? $good[rand @good] : $bad[rand @bad];
    my $s = connect_to() or return;
    $s->blocking(0);
    $by{fileno $s} = {%$what, socket => $s, out => $what->{bytes}, in => '',
                      begun => time, next => time};
    $select->add($s);
}

sub finish {
    my ($c) = @_;
    $select->remove($c->{socket});
    delete $by{fileno $c->{socket}};
    close $c->{socket};
    $count{$c->{kind}}++;
    return if $c->{cut} || $c->{slow};
    my ($status) = $c->{in} =~ m{^HTTP/1\.[01] (\d+)};
    $status //= '';
    if ($status eq '429') {
        $refused{$c->{kind}}++;
        return;
    }
    my $right = defined $c->{text}
        ? $status eq '200' && (text_of($c->{in}) // '') eq $c->{text}
        : $c->{want} eq '' ? $status eq '' || $status =~ /^4/
                           : $status eq $c->{want};
    return if $right;
    $wrong++;
    print "# wrong: $c->{kind}, ", length $c->{in}, " bytes: ",
        substr($c->{in}, 0, 300) =~ s/[\r\n]+/ | /gr, "\n" if $wrong <= 5;
}

sub write_some {
    my ($c) = @_;
    return if $c->{out} eq '' || time < $c->{next};
    my $n = $c->{slow} ? 3 : length $c->{out};
    my $done = syswrite $c->{socket}, $c->{out}, $n;
    $c->{next} = time + 0.1 if $c->{slow};
    $c->{out} = substr $c->{out}, $done if $done;
}

my $end = time + $seconds;
while (time < $end || keys %by) {
    begin() while time < $end && keys %by < $clients && ++$seen{tries} > 0;
    my @ready = $select->can_read(0.02);
    for my $s (@ready) {
        my $c = $by{fileno $s} or next;
        next if $c->{deaf};
        my $n = sysread $s, $c->{in}, 65536, length $c->{in};
        finish($c) if defined $n && $n == 0 || !defined $n && !$!{EAGAIN};
    }
    for my $c (values %by) {
        write_some($c);
        my $age = time - $c->{begun};
        if ($age > ($c->{cut} // ($c->{slow} ? 4 : 120))) {
            if (!$c->{cut} && !$c->{slow}) {
                print "# no answer in 120 s: $c->{kind}\n";
                $wrong++;
            }
            $c->{cut} //= 1;
            finish($c);
        }
    }
}
printf "# %-16s %7d, refused by 429: %d\n", $_, $count{$_}, $refused{$_} // 0
    for sort keys %count;
my $valid = 0;
$valid += ($count{$_} // 0) - ($refused{$_} // 0)
    for 'text', 'stream', 'chat', 'chat stream';
print "# wrong: $wrong, valid and answered: $valid\n";
exit($wrong || !$valid ? 1 : 0);
