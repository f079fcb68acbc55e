package headroom.apps;
class Main {}
